"""Tests PyTorch's TCPStore with drun's, as client and as server. Prints one line per check. Exits with 77 without torch.

    torch_store.py client PORT            runs every operation of PyTorch's client on the server at PORT
    torch_store.py serve libuv|poll       runs PyTorch's server for another client: prints its port, runs until
                                          a signal
"""
import multiprocessing
import os
import signal
import sys
import time
from datetime import timedelta

SKIPPED = 77

try:
    import torch
    from torch.distributed import PrefixStore, TCPStore
except Exception as error:  # treats a broken installation as missing
    print(f"skipped: torch does not import with {sys.executable}: {error}")
    sys.exit(SKIPPED)

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def check(what, holds):
    print(("ok   " if holds else "FAIL ") + what, flush=True)
    if not holds:
        sys.exit(1)


def raises(action, *kinds):
    try:
        action()
    except kinds or Exception:
        return True
    return False


def client(port, **options):
    if VERSION < (2, 4):
        options.pop("use_libuv", None)
    return TCPStore("127.0.0.1", port, None, False, timedelta(seconds=20), **options)


def waiter(port, key, index, results, options):
    store = client(port, **options)
    store.wait([key], timedelta(seconds=20))
    results.put((index, store.get(key)))


def basics(port, options):
    store = client(port, **options)
    other = client(port, **options)
    store.set("key", "value")
    check("set, get", other.get("key") == b"value")
    check("binary and empty values", [store.set("b", bytes(range(256)).decode("latin1")), store.set("e", "")] and other.get("e") == b"")
    check("add", store.add("count", 5) == 5 and other.add("count", -2) == 3)
    check("add is decimal text", store.get("count") == b"3")
    check("compare_set creates", store.compare_set("cas", "", "one") == b"one")
    check("compare_set keeps", store.compare_set("cas", "wrong", "two") == b"one")
    check("compare_set changes", store.compare_set("cas", "one", "two") == b"two")
    check("compare_set of a missing key", store.compare_set("none", "expected", "x") == b"expected")
    check("delete_key", store.delete_key("cas") and not store.delete_key("cas"))
    check("num_keys", store.num_keys() >= 4)
    check("wait for what is there", store.wait(["key", "count"]) is None)
    big = "x" * (4 << 20)
    store.set("big", big)
    check("a big value", len(other.get("big")) == len(big))
    prefixed = PrefixStore("a", PrefixStore("b", store))
    prefixed.set("k", "p")
    check("PrefixStore", other.get("b/a/k") == b"p")


def timeouts(port, options):
    store = client(port, **options)
    start = time.monotonic()
    check("wait times out", raises(lambda: store.wait(["never"], timedelta(milliseconds=200))))
    check("in time", time.monotonic() - start < 5)
    if VERSION >= (2, 1):  # the connection of a legacy client may still receive the late answer
        check("and the store is usable after it", store.add("after", 1) == 1)
        check("again", raises(lambda: store.wait(["never"], timedelta(milliseconds=1))))
        store.set("never", "now")
        check("and then gets it", store.get("never") == b"now")


def wakes(port, options):
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    processes = [context.Process(target=waiter, args=(port, "wake", i, results, options)) for i in range(8)]
    for process in processes:
        process.start()
    client(port, **options).set("wake", "up")
    got = [results.get() for _ in processes]
    for process in processes:
        process.join()
    check("8 waiting processes are woken", sorted(got) == [(i, b"up") for i in range(8)])


def current_operations(port, options):
    store = client(port, **options)
    if hasattr(store, "check"):
        check("check", store.check(["key"]) and not store.check(["key", "missing"]))
    if hasattr(store, "append"):
        store.append("log", "a")
        store.append("log", "b")
        check("append", store.get("log") == b"ab")
    if hasattr(store, "multi_get"):
        store.multi_set(["m1", "m2"], ["one", ""])
        check("multi_set, multi_get", store.multi_get(["m2", "m1"]) == [b"", b"one"])
        keys = [f"many{i}" for i in range(5000)]
        store.multi_set(keys, keys)
        check("5000 keys at once", store.multi_get(keys) == [key.encode() for key in keys])
        check("and checked", store.check(keys) if hasattr(store, "check") else True)
    if hasattr(store, "queue_push") and options.get("use_libuv", True):
        store.queue_push("q", "a")
        store.queue_push("q", "b")
        check("queue_len", store.queue_len("q") == 2)
        check("queue_pop", store.queue_pop("q") == b"a" and store.queue_pop("q", False) == b"b")
        check("an empty queue says so", raises(lambda: store.queue_pop("q", False)))
    if hasattr(store, "list_keys"):
        check("list_keys", "key" in store.list_keys())
    if hasattr(store, "clone"):
        check("clone", store.clone().get("key") == b"value")
    if hasattr(store, "barrier"):
        barrier(port, options)


def barrier_member(port, results, options):
    client(port, **options).barrier("barrier", 4, timedelta(seconds=20))
    results.put(time.monotonic())


def barrier(port, options):
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    processes = [context.Process(target=barrier_member, args=(port, results, options)) for _ in range(3)]
    for process in processes:
        process.start()
    store = client(port, **options)
    while store.add("barrier", 0) != 3:
        time.sleep(0.01)
    last = time.monotonic()
    store.barrier("barrier", 4, timedelta(seconds=20))
    times = [results.get() for _ in processes]
    for process in processes:
        process.join()
    check("barrier", all(at >= last for at in times))


def as_client(port):
    kinds = [{"use_libuv": True}, {"use_libuv": False}] if VERSION >= (2, 4) else [{}]
    for options in kinds:
        print(f"torch {torch.__version__} {options}", flush=True)
        cleaner = client(port, **options)
        for key in ["count", "cas", "after", "never", "wake", "log", "q", "barrier"]:
            cleaner.delete_key(key)
        basics(port, options)
        wakes(port, options)
        current_operations(port, options)
        timeouts(port, options)


def serve(backend):
    options = {"use_libuv": backend == "libuv"} if VERSION >= (2, 4) else {}
    store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=20), **options)
    print(store.port, flush=True)
    signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "client":
        as_client(int(sys.argv[2]))
        print("done")
    else:
        serve(sys.argv[2])
