"""drun, a launcher of distributed jobs. The program is a binary; this package only locates it."""
