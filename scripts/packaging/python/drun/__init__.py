"""drun, a launcher of distributed jobs. The program is a binary; this package only finds it."""
