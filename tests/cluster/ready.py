"""Stands in for the API server of a node: answers whoever asks that it is well, by TLS and without.

    ready.py CERTIFICATE KEY

The standard library has to do: it runs inside a network namespace.
"""

import socket
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 6443


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if request.recv(1, socket.MSG_PEEK) == b"\x16":  # a handshake
            with self.context.wrap_socket(request, server_side=True) as inside:
                super().finish_request(inside, client_address)
        else:
            super().finish_request(request, client_address)


if __name__ == "__main__":
    Server.context.load_cert_chain(*sys.argv[1:])
    Server(("", PORT), Answer).serve_forever()
