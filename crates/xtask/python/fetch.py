"""Waits until a server answers, and writes its answer to a file.

Usage: fetch.py URL FILE
"""

import sys
import time

import httpx

WAIT_SECONDS = 30


def main(url, path):
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            answer = httpx.get(url)
            break
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    answer.raise_for_status()
    with open(path, "wb") as file:
        file.write(answer.content)


if __name__ == "__main__":
    main(*sys.argv[1:])
