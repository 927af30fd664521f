"""Greedy text of a served model, beside a text that it must equal."""

import subprocess


def count_differences(build, model, texts, tokens):
    """Serves `model` with exact numerics; how many of `texts`, pairs of a prompt and what follows
    it, the server continues otherwise. Prints a line for each."""
    server = subprocess.Popen(
        [build / "server/vitrine-server", f"--model={model}", "--listen=127.0.0.1:0",
         "--numerics=exact"], stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().split()[-1]
        differences = 0
        for prompt, expected in texts:
            answer = subprocess.run(
                [build / "client/vitrine", "generate", prompt, f"--server={address}",
                 "--temperature=0", f"--max_tokens={tokens}", "--ignore_eos", "--timeout=10m"],
                check=True, capture_output=True, text=True).stdout
            is_equal = answer.removesuffix("\n") == expected.removesuffix("\n")
            print("equal" if is_equal else f"differs:\n{answer!r}\n{expected!r}", repr(prompt),
                  flush=True)
            differences += not is_equal
        return differences
    finally:
        server.terminate()
        server.wait()
