"""What kube-proxy of a node says of a Service's endpoints there, with the time of day, whenever it changes.

    witness.py URL...

The standard library has to do: it runs inside a network namespace.
"""

import http.client
import sys
import time
from urllib.parse import urlsplit

EVERY = 0.1
"""Seconds."""


def asked(url: str) -> str:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=1)
    try:
        connection.request("GET", "/")
        return " ".join(connection.getresponse().read().decode().split())
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def main(urls: list[str]) -> None:
    before: dict[str, str] = {}
    while True:
        for url in urls:
            if (said := asked(url)) != before.get(url):
                before[url] = said
                sys.stdout.write(f"{time.time():.6f} kube-proxy at {url}: {said}\n")
                sys.stdout.flush()
        time.sleep(EVERY)


if __name__ == "__main__":
    main(sys.argv[1:])
