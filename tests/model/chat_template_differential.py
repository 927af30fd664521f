"""Renders chat templates with vitrine and with transformers' environment.

    python3 tests/model/chat_template_differential.py build/tests/model/render_stream TEMPLATE...

TEMPLATE is a file of a template or a folder of *.jinja files. Each is rendered with conversations
of every kind that templates tell apart. Equal is the same text, or an error on both sides (with
the same words where the template raised it). Prints each difference and ends with 1 where there is
one. Not part of the test suite: needs the Python packages jinja2 and transformers.
"""

import argparse
import datetime
import difflib
import json
import pathlib
import subprocess
import sys

import jinja2
from transformers.utils import chat_template_utils

NOW = datetime.datetime(2025, 3, 14, 15, 9, 26)

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city <now> & \"here\".",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Ä city"},
        "days": {"type": "integer", "enum": [1, 2], "default": 1},
        "unit": {"type": ["string", "null"]},
        "where": {"type": "array", "items": {"type": "number"}},
        "more": {"type": "object", "properties": {"a": {"type": "boolean"}}}}}},
    "return": {"type": "string"}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.",
                                          "parameters": {"type": "object", "properties": {}}}}


def say(role, content, **more):
    return {"role": role, "content": content} | more


def call(name, arguments, id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = say("system", "You are terse.  ")
QUESTION = say("user", "  What's the weather in Paris, \"today\"? <b>&</b>\n")
CALLS = say("assistant", "", tool_calls=[call("get_weather", {"city": "Paris", "days": 2})])
RESULT = say("tool", "{\"t\": 21.5}", name="get_weather", tool_call_id="call00001")

MESSAGES = {
    "user": [QUESTION],
    "system": [SYSTEM, QUESTION],
    "turns": [SYSTEM, say("user", "1+1?"), say("assistant", "2"), say("user", "2+2?"),
              say("assistant", "4\n")],
    "thinks": [say("user", "Hi"), say("assistant", "<think>\nHm.\n</think>\n\nHello"),
               say("user", "Again"), say("assistant", "Yes", reasoning_content="Twice now."),
               say("user", "And?")],
    "calls": [SYSTEM, QUESTION, CALLS, RESULT, say("assistant", "Mild, 21.5 °C."),
              say("user", "Thanks")],
    "calls-end": [QUESTION, CALLS, RESULT],
    "calls-null": [QUESTION, CALLS | {"content": None}, RESULT],
    "calls-text": [QUESTION, say("assistant", "Let me see.", tool_calls=[
        call("get_weather", "{\"city\": \"Paris\"}")]), RESULT],
    "calls-two": [QUESTION, say("assistant", "", tool_calls=[
        call("get_weather", {"city": "Paris", "where": [1, 2.5, None], "more": {"a": True}}),
        call("clock", {}, "call00002")]), RESULT,
        say("tool", "noon", name="clock", tool_call_id="call00002"), say("assistant", "Done")],
    "parts": [say("user", [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}])],
    "parts-system": [say("system", [{"type": "text", "text": "Short."}]),
                     say("user", [{"type": "text", "text": "Hi"}]),
                     say("assistant", [{"type": "text", "text": "Ho"}])],
    "image": [say("user", [{"type": "image"}, {"type": "text", "text": "What is it?"}])],
    "users": [say("user", "a"), say("user", "b"), say("user", "c")],
    "assistant-first": [say("assistant", "I begin."), say("user", "Go on")],
    "developer": [say("developer", "Be brief."), say("user", "Hi")],
    "unknown-role": [say("user", "Hi"), say("narrator", "Meanwhile")],
    "empty": [],
    "empty-text": [say("system", ""), say("user", "")],
    "null": [say("user", None)],
    "system-late": [say("user", "Hi"), say("assistant", "Ho"), say("system", "Stop."),
                    say("user", "Why?")],
}

VARIABLES = {
    "plain": {"bos_token": "<s>", "eos_token": "</s>"},
    "thinking": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
                 "unk_token": "<unk>", "enable_thinking": False, "date_string": "01 Jan 2025",
                 "reasoning_effort": "high", "xml_tools": True, "thinking": True},
}
TOOLS = {"no-tools": None, "tools": [WEATHER, CLOCK]}


def conversations():
    for message_name, messages in MESSAGES.items():
        for tools_name, tools in TOOLS.items():
            for variables_name, variables in VARIABLES.items():
                for opens in (True, False):
                    if variables_name == "thinking" and not opens:
                        continue
                    name = f"{message_name}/{tools_name}/{variables_name}/{'open' if opens else ''}"
                    yield name, {"messages": messages, "tools": tools,
                                 "variables": variables | {"add_generation_prompt": opens}}


def reference(template, conversation):
    """(True, text) or (False, kind of error, words of raise_exception or None)."""
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        compiled.globals["strftime_now"] = NOW.strftime
        return True, compiled.render(messages=conversation["messages"], documents=None,
                                     tools=conversation["tools"], **conversation["variables"])
    except jinja2.exceptions.TemplateSyntaxError:
        return False, "syntax", None
    except jinja2.exceptions.TemplateError as error:
        was_raised = type(error) is jinja2.exceptions.TemplateError
        return False, "raised" if was_raised else "runtime", str(error) if was_raised else None
    except Exception:  # A TypeError and the like, from the template's own expressions.
        return False, "runtime", None


def ours(stream, template, conversation):
    line = json.dumps({"template": template} | conversation)
    stream.stdin.write(line.encode() + b"\n")
    stream.stdin.flush()
    answer = json.loads(stream.stdout.readline())
    if "text" in answer:
        return True, answer["text"]
    return False, answer["kind"], answer["error"]


def difference(expected, actual):
    """What differs, in a few lines; empty where nothing does."""
    if expected[0] != actual[0]:
        return f"expected {str(expected)[:300]}, got {str(actual)[:300]}"
    if not expected[0]:
        is_equal = expected[1] == actual[1] and expected[2] in (None, actual[2])
        return "" if is_equal else f"expected {expected}, got {actual}"
    if expected[1] == actual[1]:
        return ""
    lines = difflib.ndiff(expected[1].splitlines(True), actual[1].splitlines(True))
    return "\n".join(repr(line) for line in lines if line[0] in "+-")[:600]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stream", type=pathlib.Path)
    parser.add_argument("template", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    paths = [path for given in args.template
             for path in (sorted(given.rglob("*.jinja")) if given.is_dir() else [given])]
    stream = subprocess.Popen([args.stream], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    renderings = differences = 0
    for path in paths:
        template = path.read_text(encoding="utf-8")
        for name, conversation in conversations():
            expected = reference(template, conversation)
            found = difference(expected, ours(stream, template, conversation))
            renderings += 1
            if found:
                differences += 1
                print(f"{path.name} {name}: {found}", flush=True)
    print(f"{len(paths)} templates, {renderings} renderings, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
