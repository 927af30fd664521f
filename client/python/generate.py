#!/usr/bin/env python3
"""Streams an answer from a vitrine server: the smallest complete client.

    client/python/generate.py "The capital of France is" --server 127.0.0.1:50051

Needs Debian's python3-grpcio, protobuf-compiler and protobuf-compiler-grpc. The stubs are made from
proto/ at start, so that there is no second copy of the contract; an application would make them once.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
FILES = ["attention", "generation"]


def load_stubs():
    """Returns the modules of the messages and of the service."""
    plugin = shutil.which("grpc_python_plugin")
    if plugin is None or shutil.which("protoc") is None:
        sys.exit("generate.py: needs protoc and grpc_python_plugin "
                 "(packages protobuf-compiler and protobuf-compiler-grpc)")
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            ["protoc", f"-I{PROTO}", f"--python_out={out}", f"--grpc_python_out={out}",
             f"--plugin=protoc-gen-grpc_python={plugin}"]
            + [str(PROTO / "vitrine" / "v1" / f"{name}.proto") for name in FILES],
            check=True)
        sys.path.insert(0, out)
        from vitrine.v1 import generation_pb2, generation_pb2_grpc
    return generation_pb2, generation_pb2_grpc


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt")
    parser.add_argument("--server", default="127.0.0.1:50051")
    parser.add_argument("--max_tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    arguments = parser.parse_args()

    import grpc
    messages, service = load_stubs()
    request = messages.GenerateRequest(text=arguments.prompt.encode())
    request.sampling.temperature = arguments.temperature
    request.stop.max_tokens = arguments.max_tokens
    try:
        with grpc.insecure_channel(arguments.server) as channel:
            for event in service.GenerationStub(channel).Generate(request):
                kind = event.WhichOneof("event")
                if kind == "tokens":
                    print("".join(token.text for token in event.tokens.tokens), end="", flush=True)
                elif kind == "choice_finished":
                    print(event.choice_finished.tail_text)
                elif kind == "done":
                    usage = event.done.usage
                    print(f"{usage.prompt_tokens} prompt tokens, {usage.completion_tokens} generated",
                          file=sys.stderr)
    except grpc.RpcError as error:
        sys.exit(f"generate.py: {error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
