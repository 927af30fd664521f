#!/usr/bin/env python3
"""Closed-loop load on llama-server's streaming /completion endpoint, for served.sh.

Sends prompts of random token ids, all different, to a server on this machine, so many at all times
as --concurrency says. Prints one JSON object with the figures that `vitrine bench --json` has under
the same names: output_tokens_per_s, ttft_ms and itl_ms (p50, p90, p99, max by nearest rank; ITL:
every gap between consecutive messages of a stream, pooled). Exit code 1 when an answer is short.
"""

import argparse
import http.client
import json
import math
import queue
import random
import sys
import threading
import time


def percentiles(seconds):
    """Of times in seconds, in milliseconds."""
    ranked = sorted(seconds)

    def at(share):
        return 1e3 * ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else 0.0

    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0), "count": len(ranked)}


def complete(port, prompt, output_tokens):
    """Times of one request: when it was sent, and when each message with tokens arrived."""
    body = {"prompt": prompt, "n_predict": output_tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "cache_prompt": False, "return_tokens": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    sent = time.perf_counter()
    connection.request("POST", "/completion", json.dumps(body),
                       {"Content-Type": "application/json"})
    arrivals = []
    tokens = 0
    for line in connection.getresponse():
        if line.startswith(b"data: "):
            event = json.loads(line[len(b"data: "):])
            if event.get("stop"):
                # Tokens in the middle of a character are in no message of their own.
                tokens = event["tokens_predicted"]
            elif event.get("tokens"):
                arrivals.append(time.perf_counter())
    connection.close()
    return sent, arrivals, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--prompt_tokens", type=int, default=128)
    parser.add_argument("--output_tokens", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    generator = random.Random(options.seed)
    todo = queue.SimpleQueue()
    for _ in range(options.requests):
        todo.put([generator.randrange(100, options.vocabulary) for _ in
                  range(options.prompt_tokens)])
    results = []

    def work():
        while True:
            try:
                prompt = todo.get_nowait()
            except queue.Empty:
                return
            results.append(complete(options.port, prompt, options.output_tokens))

    workers = [threading.Thread(target=work) for _ in range(options.concurrency)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    wall = time.perf_counter() - begin

    output = sum(tokens for _, _, tokens in results)
    print(json.dumps({
        "requests": len(results), "output_tokens": output, "wall_s": wall,
        "output_tokens_per_s": output / wall,
        "ttft_ms": percentiles([arrivals[0] - sent for sent, arrivals, _ in results if arrivals]),
        "itl_ms": percentiles([b - a for _, arrivals, _ in results
                               for a, b in zip(arrivals, arrivals[1:])]),
    }))
    wanted = options.requests * options.output_tokens
    if output != wanted:
        print(f"{output} of {wanted} tokens came back", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
