"""Servers on loopback that health checks meet, and who is told of what is found."""

import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def serving(behaviour, address="127.0.0.1"):
    """The port of a server that does ``behaviour(connection)`` to each that connects."""
    ended = threading.Event()
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as listening:

        def one(connection):
            with suppress(OSError), connection:
                behaviour(connection)

        def serve():
            while not ended.is_set():
                with suppress(OSError):
                    threading.Thread(target=one, args=(listening.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            ended.set()
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def asked(connection):
    read = b""
    while b"\r\n\r\n" not in read and (more := connection.recv(65536)):
        read += more
    return read


def says(*parts, pause=0.0):
    def behaviour(connection):
        asked(connection)
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)

    return behaviour


def resets(connection):
    asked(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def waits(connection):
    connection.recv(65536)
    threading.Event().wait(3)


def drips(text):
    return says(*(text[at : at + 1] for at in range(len(text))))


def speaks_first(connection):
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    connection.recv(65536)


def closes(connection):
    connection.recv(1)


class Told:
    def __init__(self):
        self.edges = []

    def failed(self, edge, error):
        self.edges.append(str(error))

    def recovered(self, edge):
        self.edges.append("recovered")

    def internal_error(self, task, error):
        raise AssertionError from error

    def endpoints_checked(self, tally):
        pass
