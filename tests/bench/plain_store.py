#!/usr/bin/env python3
"""A minimal store in Python as a reference: one epoll loop that answers only VALIDATE, PING, ADD and SET of PyTorch's TCPStore.

usage: plain_store.py PORT        (store_bench CLIENTS ROUNDS PORT measures it)
"""
import select
import socket
import struct
import sys

server = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=65535)
server.setblocking(False)
print("listening", flush=True)
server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
poll = select.epoll()
poll.register(server, select.EPOLLIN)
clients = {}
keys = {}


def text(data, at):
    size, = struct.unpack_from("<Q", data, at)
    return data[at + 8:at + 8 + size], at + 8 + size


def answer(data):
    out, at = b"", 0
    while at < len(data):
        operation, at = data[at], at + 1
        if operation == 0:
            at += 4
        elif operation == 13:
            out, at = out + data[at:at + 4], at + 4
        elif operation == 4:
            key, at = text(data, at)
            keys[key] = keys.get(key, 0) + struct.unpack_from("<q", data, at)[0]
            out, at = out + struct.pack("<q", keys[key]), at + 8
        elif operation == 1:
            key, at = text(data, at)
            keys[key], at = text(data, at)
        elif operation == 5:
            count, = struct.unpack_from("<Q", data, at)
            at += 8
            for _ in range(count):
                _, at = text(data, at)
            out += b"\0"
        else:
            raise ValueError(operation)
    return out


while True:
    for fd, _ in poll.poll():
        if fd == server.fileno():
            try:
                while True:
                    client, _ = server.accept()
                    client.setblocking(False)
                    clients[client.fileno()] = client
                    poll.register(client, select.EPOLLIN)
            except BlockingIOError:
                continue
        client = clients[fd]
        data = client.recv(65536)
        if not data:
            poll.unregister(fd)
            clients.pop(fd).close()
            continue
        out = answer(data)
        if out:
            client.send(out)
