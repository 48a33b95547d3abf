# The preloaded interpreter of a node (docs/guide/preload.md). The agent runs this text with
# `python -u -c`, with one end of a SOCK_SEQPACKET pair as descriptor 0 and these arguments:
#
#     TIMEOUT_S  script|module  NAME  IMPORTED_MODULE...
#
# It imports the modules, checks that a fork is safe, and then forks one worker for each request.
# In a worker this text ends where the program begins, so that the interpreter's own code reports
# uncaught exceptions and ends the process. Messages (agent/preload/protocol.h) have fields that end
# with NUL:
#
#     to the agent    ready SECONDS | failed MODULE | unsafe REASON | forked PID | refused REASON
#     from the agent  fork, with the descriptors stdin, stdout, stderr, channel and request
#
# A worker waits for a byte on its channel before it does anything that can be observed. The channel
# closes when the worker begins the program. Before that it may carry "memory ERRNO" (the memory
# could not be placed), "cpus ERRNO" or "strict ERRNO" (the worker ends).
import array
import ctypes
import gc
import os
import socket
import sys
import time


def _report(*fields):
    _control.send(b"".join(str(field).encode("utf-8", "replace")[:4096] + b"\0" for field in fields))


def _without_our_frames(traceback):
    while traceback is not None and traceback.tb_frame.f_globals is globals():
        traceback = traceback.tb_next
    return traceback


def _memory_fields():
    # proc(5): fields 26, 27 ... of /proc/PID/stat, by their numbers
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rsplit(b")", 1)[1].split()
    return {number: int(fields[number - 3]) for number in (26, 27, 28, 45, 46, 47, 48, 49, 50, 51)}


class _MemoryMap(ctypes.Structure):  # linux/prctl.h: struct prctl_mm_map
    _fields_ = [("places", ctypes.c_uint64 * 11), ("auxv", ctypes.c_void_p), ("auxv_size", ctypes.c_uint32), ("exe_fd", ctypes.c_uint32)]


def _show_as(words, environment):
    """What ps and /proc/PID show as this process's command line and environment."""
    global _shown
    arguments = b"".join(word + b"\0" for word in words)
    shown = ctypes.create_string_buffer(arguments + b"".join(line + b"\0" for line in environment))
    begin = ctypes.addressof(shown)
    middle, end = begin + len(arguments), begin + len(shown) - 1
    _libc.sbrk.restype = ctypes.c_void_p
    fields = _memory_fields()
    places = [fields[number] for number in (26, 27, 45, 46, 47)] + [_libc.sbrk(0), fields[28], begin, middle, middle, end]
    new = _MemoryMap((ctypes.c_uint64 * 11)(*places), None, 0, 0xFFFFFFFF)
    if _libc.prctl(35, 14, ctypes.byref(new), ctypes.c_ulong(ctypes.sizeof(new)), ctypes.c_ulong(0)) == 0:  # PR_SET_MM_MAP
        _shown = shown  # the kernel reads it whenever it is asked
        return
    # A kernel without CONFIG_CHECKPOINT_RESTORE: the command line alone, in the old one's place.
    begin, end = _first_area
    if 0 < begin < end:
        text = arguments[: end - begin - 1]
        ctypes.memmove(begin, text + b"\0" * (end - begin - len(text)), end - begin)


def _task_count():
    return len(os.listdir("/proc/self/task"))


def _end_threads_that_handle_fork():
    # Libraries that can be forked (OpenBLAS) end their threads in a handler that runs before a
    # fork, and start them again when they are needed. Whatever is left after a fork would be
    # missing in the workers.
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _device_or_socket():
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        if int(name) in _own_fds or (int(name), target) in _first_fds:
            continue
        if target.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/infiniband", "socket:", "anon_inode:[infiniband")):
            return target
    return None


def _unsafe():
    """Why this process must not be forked now; None: it may be."""
    threading = sys.modules.get("threading")
    if threading is not None:
        others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if others:
            return "the Python thread %s is running" % others[0]
    if _task_count() > 1:
        _end_threads_that_handle_fork()
    # A thread that was joined may still be about to leave the kernel.
    end = time.monotonic() + 1
    while _task_count() > 1 and time.monotonic() < end:
        time.sleep(0.001)
    count = _task_count() - 1
    if count > 0:
        return "%d %s of a library does not handle fork" % (count, "thread" if count == 1 else "threads")
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and getattr(cuda, "_initialized", False):
        return "CUDA is initialized"
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return "torch.distributed is initialized"
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized():
        return "MPI is initialized"
    opened = _device_or_socket()
    if opened is not None:
        kind = "a socket" if opened.startswith("socket:") else opened
        return kind + " is open"
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return "a child process exists"
    except ChildProcessError:
        return None


def _absolute(path):  # as CPython makes __file__ of the main script absolute
    if os.path.isabs(path) or sys.version_info < (3, 9):
        return path
    return os.getcwd() + "/" + path


def _set_first_path():
    if getattr(sys.flags, "safe_path", False) or not sys.path or sys.path[0] != "":
        return
    sys.path[0] = os.getcwd() if _kind == "module" else os.path.dirname(os.path.realpath(_name))


def _import_modules():
    import faulthandler

    end = time.monotonic() + _timeout
    for module in _modules:
        # The agent ends a process that takes longer; this shows where it hangs.
        faulthandler.dump_traceback_later(max(0.001, end - time.monotonic()), file=2)
        try:
            __import__(module)
        except BaseException as problem:
            problem.__traceback__ = _without_our_frames(problem.__traceback__)
            sys.__excepthook__(type(problem), problem, problem.__traceback__)
            _report("failed", module)
            os._exit(1)
        finally:
            faulthandler.cancel_dump_traceback_later()
        problem = _unsafe()
        if problem is not None:
            _report("unsafe", "after the import of %s, %s" % (module, problem))
            os._exit(0)
    gc.collect()
    gc.freeze()  # a collection in a worker must not touch, and so copy, what was imported


def _fork_worker(fds):
    """In this process: None. In the worker: True, once its parent is the agent."""
    reading, writing = os.pipe()
    between = os.fork()
    if between != 0:
        os.close(writing)
        pid = os.read(reading, 32)
        os.close(reading)
        os.waitpid(between, 0)  # from here on the worker is the agent's child
        if pid:
            _report("forked", pid.decode())
        else:
            _report("refused", "fork failed")
        return None
    # The child of a child is adopted by the agent, as its nearest subreaper.
    try:
        worker = os.fork()
    except OSError:
        os._exit(1)
    if worker != 0:
        os.write(writing, str(worker).encode())
        os._exit(0)
    os.close(reading)
    os.close(writing)
    return True


def _place(channel, cpus, memory, nodes):
    if cpus:
        try:
            os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(b",")])
        except OSError as problem:
            os.write(channel, b"cpus %d" % problem.errno)
            os._exit(127)
    if memory == b"none":
        return
    # linux/mempolicy.h, as agent/spawn/binding.cc
    numbers = [int(node) for node in nodes.split(b",")]
    words = max(numbers) // 64 + 1
    mask = (ctypes.c_ulong * words)()
    for number in numbers:
        mask[number // 64] |= 1 << (number % 64)
    mode = 2 if memory == b"strict" else 1 if len(numbers) == 1 else 5
    call = {"x86_64": 238, "aarch64": 237}[os.uname().machine]
    failed = _libc.syscall(call, mode, mask, ctypes.c_ulong(words * 64 + 1))
    if failed and mode == 5 and ctypes.get_errno() == 22:  # before Linux 5.15
        failed = _libc.syscall(call, 4, None, ctypes.c_ulong(0))
    if failed:
        what = b"strict" if memory == b"strict" else b"memory"
        os.write(channel, what + b" %d" % ctypes.get_errno())
        if what == b"strict":
            os._exit(127)


def _set_environment(wanted):
    os.environ.clear()
    for line in wanted:
        name, _, value = line.partition(b"=")
        os.environb[name] = value
    # What Python (LC_CTYPE) and the modules changed when they were started or imported, as they
    # would have done here.
    for name, (before, after) in _environment_changes.items():
        if os.environb.get(name) != before:
            continue
        if after is None:
            os.environb.pop(name, None)
        else:
            os.environb[name] = after


def _reopen(stream, fd, mode):
    # In place: modules may have kept the object. As create_stdio() of CPython for -u.
    if stream is None:
        return
    encoding, errors, name = stream.encoding, stream.errors, stream.name
    buffer = open(fd, mode, 0 if mode == "wb" else -1, closefd=False)
    (buffer if mode == "wb" else buffer.raw).name = name
    stream.__init__(buffer, encoding, errors, "\n", False, True)
    stream.mode = mode[0]


def _renew_state():
    """Renews the state that must differ between processes: seeds, keys, the main thread's id."""
    numpy_random = sys.modules.get("numpy.random.mtrand")
    if numpy_random is not None:
        numpy_random._rand.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    threading = sys.modules.get("threading")
    if threading is not None and hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()


def _start_control_server():
    """Serves PyTorch's Flight Recorder for the agent, as a program with torch's worker_main() does."""
    path = os.environ.get("TORCH_WORKER_SERVER_SOCKET")
    if not path or "torch" not in sys.modules:
        return
    errors = os.dup(2)
    try:
        from torch._C._distributed_c10d import _WorkerServer

        _null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(_null, 2)  # it prints a line
        os.close(_null)
        server = _WorkerServer(path)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))  # its end is the process's
        del os.environ["TORCH_WORKER_SERVER_SOCKET"]  # worker_main() would start another one
    except Exception:
        pass  # an older torch, or one without distributed
    finally:
        os.dup2(errors, 2)
        os.close(errors)


def _become_worker(fds):
    """The rest of what agent/spawn/spawn.cc does for a worker, and what Python does at its start."""
    stdin, stdout, stderr, channel, request = fds
    _control.close()
    os.setpgid(0, 0)
    if os.read(channel, 1) != b"g":
        os._exit(127)
    fields = os.pread(request, os.fstat(request).st_size, 0).split(b"\0")
    agent, cpus, memory, nodes, argument_count = fields[:5]
    _libc.prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != int(agent):
        os._exit(127)
    _place(channel, cpus, memory, nodes)
    for fd, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(fd, target)
        os.close(fd)
    os.close(request)
    words = fields[5 : 5 + int(argument_count)]
    environment = fields[5 + int(argument_count) : -1]
    _set_environment(environment)
    _show_as(words, environment)
    words = [os.fsdecode(word) for word in words]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = words
    sys.argv[:] = words[2:] if _kind == "script" else ["-m"] + words[4:]
    _reopen(sys.stdin, 0, "rb")
    _reopen(sys.stdout, 1, "wb")
    _reopen(sys.stderr, 2, "wb")
    _renew_state()
    _start_control_server()
    os.close(channel)


def _serve():
    """Returns in each worker."""
    while True:
        try:
            message, ancillary, _, _ = _control.recvmsg(64, socket.CMSG_SPACE(5 * 4), socket.MSG_CMSG_CLOEXEC)
        except KeyboardInterrupt:
            continue
        if not message:
            os._exit(0)
        fds = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data)
        _own_fds.update(fds)
        reason = _unsafe() if len(fds) == 5 else "a request is incomplete"
        try:
            if reason is not None:
                _report("refused", reason)
            elif _fork_worker(fds):
                return fds
        except OSError as problem:
            _report("refused", "fork: " + os.strerror(problem.errno))
        for fd in fds:
            os.close(fd)
        _own_fds.difference_update(fds)


def _load_main():
    """A fresh __main__, and the program's code: None for a module, which runpy loads."""
    import builtins
    import types

    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    if _kind == "module":
        return main, None
    from importlib.machinery import SourceFileLoader

    path = _absolute(_name)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as problem:
        sys.stderr.write(
            "%s: can't open file %r: [Errno %d] %s\n" % (sys.executable, path, problem.errno, os.strerror(problem.errno))
        )
        sys.exit(2)
    main.__file__ = path
    if sys.version_info < (3, 15):
        main.__cached__ = None
    main.__loader__ = SourceFileLoader("__main__", path)
    main.__spec__ = None
    main.__package__ = None
    return main, compile(source, path, "exec", dont_inherit=True)


def _report_without_our_frames(problem):
    """The interpreter's own report of an uncaught exception, without this text in its traceback."""
    hook = sys.excepthook
    traceback = _without_our_frames(problem.__traceback__)

    def report(kind, value, _):
        sys.excepthook = hook
        value.__traceback__ = traceback
        sys.last_traceback = traceback
        hook(kind, value, traceback)

    sys.excepthook = report


_timeout = float(sys.argv[1])
_kind, _name = sys.argv[2:4]
_modules = sys.argv[4:]
_libc = ctypes.CDLL(None, use_errno=True)
_first_area = _memory_fields()[48], _memory_fields()[49]
_control = socket.socket(fileno=os.dup(0))
_null = os.open(os.devnull, os.O_RDONLY)
os.dup2(_null, 0)
os.close(_null)
_own_fds = {_control.fileno()}
_first_fds = set()
for _fd in os.listdir("/proc/self/fd"):
    try:
        _first_fds.add((int(_fd), os.readlink("/proc/self/fd/" + _fd)))
    except OSError:
        pass
with open("/proc/self/environ", "rb") as _file:
    _lines = [line for line in _file.read().split(b"\0") if b"=" in line]
_environment = dict(line.split(b"=", 1) for line in _lines)
_show_as([os.fsencode(sys.executable), b"-u", b"(drun preload)"] + [os.fsencode(each) for each in _modules], _lines)
_set_first_path()
sys.argv[:] = [_name]
_began = time.monotonic()
_import_modules()
_environment_changes = {
    name: (_environment.get(name), os.environb.get(name))
    for name in {*_environment, *os.environb}
    if _environment.get(name) != os.environb.get(name)
}
_report("ready", "%.3f" % (time.monotonic() - _began))
_become_worker(_serve())
try:
    _main, _code = _load_main()
    if _code is None:
        import runpy

        runpy._run_module_as_main(_name)
    else:
        exec(_code, _main.__dict__)
except SystemExit:
    raise
except BaseException as _problem:
    _report_without_our_frames(_problem)
    raise
