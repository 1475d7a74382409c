"""What the service answers, to whom, and what it says about itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, get_type_hints

import client
import pytest

import capsar
from capsar.errors import ConfigError
from capsar.hub import DEFAULT_MODEL
from capsar.serve.keys import read_keys
from capsar.serve.settings import Limits, Settings
from running import Running, running, wait_until

TEXT = "Great food, terrible service, and the soup was cold."
KEY = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(Settings(port=0), tmp_path_factory.mktemp("serve")) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that asks for a key, and lets pages of one other origin ask."""
    folder = tmp_path_factory.mktemp("guarded")
    path = folder / "keys.txt"
    path.write_text(f"# ours\n{sha256(KEY.encode()).hexdigest()}  shop\n")
    settings = Settings(port=0, keys=read_keys(path), origins=("https://shop.example",))
    with running(settings, folder) as found:
        yield found


@pytest.mark.parametrize("text", [TEXT, "", "Soßen! 🍜 was très bon — “the staff”\u202e."])
def test_an_answer_is_what_the_command_line_prints(service: Running, text: str) -> None:
    status, headers, body = service.ask("/v1/analyze", {"text": text})
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert body.decode() == _cli(text).strip()
    answer = json.loads(body)
    assert all(text[a["start"] : a["end"]] == a["text"] for a in answer["aspects"])
    several = json.loads(service.ask("/v1/analyze", {"texts": [text, TEXT * 3, text]})[2])
    for found in (several["documents"][0], several["documents"][2]):
        assert_same(found, answer)


def assert_same(found: dict[str, Any], other: dict[str, Any]) -> None:
    """Equal but for the last digit: sums of floats may end differently in another batch."""
    scores = [[a.pop("scores") for a in document["aspects"]] for document in (found, other)]
    assert found == other
    for one, two in zip(*scores, strict=True):
        assert one == pytest.approx(two, abs=2e-6)
    for aspect, kept in zip(other["aspects"], scores[1], strict=True):
        aspect["scores"] = kept


def _cli(text: str, *more: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "capsar", "analyze", "--text", text, "--json", *more],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_aspects_are_classified_as_by_the_command_line(service: Running) -> None:
    asked = {"text": TEXT, "aspects": ["food", "soup"]}
    _, _, body = service.ask("/v1/classify", asked)
    assert body.decode() == _cli(TEXT, "--aspect", "food", "--aspect", "soup").strip()
    place = {"text": TEXT, "aspects": [{"start": 6, "end": 10}]}
    several = json.loads(service.ask("/v1/classify", {"questions": [place, asked]})[2])
    answer = json.loads(body)
    assert_same(several["documents"][1], answer)
    assert_same(several["documents"][0], {**answer, "aspects": answer["aspects"][:1]})


def test_an_explanation_is_the_analyzers(service: Running) -> None:
    found = json.loads(service.ask("/v1/explain", {"text": TEXT, "aspect": "soup"})[2])
    told = capsar.load().explain(TEXT, "soup")
    assert [tuple(word) for word in found["words"]] == list(told.words)
    for polarity, length in told.lengths.items():
        assert found["lengths"][polarity] == pytest.approx(length, abs=1e-5)
        assert found["about"][polarity] == pytest.approx(told.about[polarity], abs=1e-4)
        assert found["because"][polarity] == pytest.approx(told.because[polarity], abs=1e-4)
    assert json.loads(service.ask("/v1/explain", {"text": TEXT})[2])["aspect"] is None


def asks(text: object, aspects: list[Any]) -> dict[str, Any]:
    """Several questions, of which only the third may be wrong."""
    good = {"text": TEXT, "aspects": ["food"]}
    return {"questions": [good, good, {"text": text, "aspects": aspects}]}


@pytest.mark.parametrize(
    ("path", "content", "status", "told"),
    [
        (
            "/v1/classify",
            {"text": TEXT, "aspects": ["stew"]},
            422,
            "aspects[0]: Aspect 'stew' does",
        ),
        ("/v1/classify", {"text": TEXT, "aspects": []}, 422, "aspects: must not be empty"),
        (
            "/v1/classify",
            asks(TEXT, [{"start": 9, "end": 3}]),
            422,
            "[2].aspects[0]: start must be below",
        ),
        (
            "/v1/classify",
            asks(TEXT, [{"start": 0, "end": 99}]),
            422,
            "[0]: end is 99, and the text has 52",
        ),
        (
            "/v1/classify",
            asks(TEXT, ["soup", "stew"]),
            422,
            "questions[2].aspects[1]: Aspect 'stew'",
        ),
        ("/v1/classify", asks(TEXT, [3]), 422, "questions[2].aspects[0]: must be a string, or"),
        ("/v1/classify", asks(TEXT, [{}]), 422, "questions[2].aspects[0].start: is missing"),
        ("/v1/classify", asks(3, ["soup"]), 422, "questions[2].text: must be a string"),
        (
            "/v1/classify",
            asks("a b", ["a"] * 65),
            422,
            "questions[2].aspects: at most 64 of a text",
        ),
        ("/v1/classify", asks("x" * 20_001, ["x"]), 422, "questions[2].text: at most 20000"),
        ("/v1/analyze", {"text": 3}, 422, "text: must be a string. See /v1/openapi.json"),
        ("/v1/analyze", {"text": TEXT, "texts": [TEXT]}, 422, "text: is not expected here"),
        ("/v1/analyze", {"texts": []}, 422, "texts: must not be empty"),
        ("/v1/analyze", {"texts": [TEXT, None, TEXT]}, 422, "texts[1]: must be a string"),
        ("/v1/analyze", {"texts": [3] * 7}, 422, "texts[4]: must be a string; and 2 more."),
        ("/v1/analyze", [TEXT], 422, "body: must be an object with text or with texts"),
        ("/v1/analyze", {"texts": [TEXT] * 513}, 422, "At most 512 texts a request, got 513"),
        ("/v1/analyze", {"text": "x" * 20_001}, 422, "text: at most 20000 characters, got 20001"),
        ("/v1/analyze", {"texts": ["x", "x" * 20_001]}, 422, "texts[1]: at most 20000"),
        ("/v1/analyze", {"texts": ["x" * 20_000] * 4}, 413, "65536 characters of work, got 80128"),
        ("/v1/explain", {"text": TEXT, "aspect": 7}, 422, "aspect: must be a string, or"),
        ("/v1/explain", {"text": TEXT, "aspect": "stew"}, 422, "aspect: Aspect 'stew' does not"),
        ("/v1/nothing", {}, 404, "Not Found"),
        ("/healthz", {}, 405, "Method Not Allowed"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_the_reason(
    service: Running, path: str, content: object, status: int, told: str
) -> None:
    got, _, body = service.ask(path, content)
    answer = json.loads(body)
    assert got == status, answer
    assert told in answer["message"]
    assert not re.search("<one>|<many>|Span|Input", answer["message"])  # no name of ours
    assert set(answer) == {"error", "message"}


def test_a_batch_with_wrong_aspects_names_some_of_them(service: Running) -> None:
    aspects = [["food"], ["stew"]] * 40
    asked = {"questions": [{"text": TEXT, "aspects": some} for some in aspects]}
    message = json.loads(service.ask("/v1/classify", asked)[2])["message"]
    named = [int(number) for number in re.findall(r"questions\[(\d+)\]\.aspects\[0\]", message)]
    assert named == [1, 3, 5, 7, 9]


def test_what_is_not_json_is_told_by_line_and_column(service: Running) -> None:
    body = b'{"texts": [\n  "fine",\n  "not so" "fine"\n]}'
    message = json.loads(service.ask("/v1/analyze", body=body)[2])["message"]
    assert message.startswith("body: Invalid JSON: expected `,` or `]` at line 3 column 12")


def test_only_json_is_read(service: Running) -> None:
    for headers in (
        {"content-type": "text/plain"},
        {"content-encoding": "gzip"},
        {"content-type": "application/x-www-form-urlencoded"},
    ):
        assert service.ask("/v1/analyze", {"text": TEXT}, headers=headers)[0] == 415
    with_charset = {"content-type": "Application/JSON; charset=utf-8"}
    assert service.ask("/v1/analyze", {"text": TEXT}, headers=with_charset)[0] == 200


def test_every_answer_is_guarded_by_headers(service: Running) -> None:
    for path in ("/", "/v1/models", "/nothing", "/metrics"):
        _, headers, _ = service.ask(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers


def test_the_openapi_document_is_true(service: Running) -> None:
    document = json.loads(service.ask("/v1/openapi.json")[2])
    asked = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method != "post":
                assert service.ask(path)[0] == 200
                continue
            shown = operation["requestBody"]["content"]["application/json"]["examples"]
            for example in shown.values():
                assert service.ask(path, example["value"])[0] == 200
                asked += 1
            assert operation["responses"]["503"]["headers"]["Retry-After"]
    assert asked == 6
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert named <= set(document["components"]["schemas"])


def test_models_and_limits_are_told(service: Running) -> None:
    told = json.loads(service.ask("/v1/models")[2])
    assert len(told["models"][0]["sha256"]) == 64
    assert told["models"][0]["name"] == DEFAULT_MODEL
    assert told["limits"]["text_chars"] == Limits().text_chars


def test_metrics_count_what_happened(service: Running) -> None:
    def count(name: str) -> float:
        found = re.search(
            rf"^{re.escape(name)} (\S+)$", service.ask("/metrics")[2].decode(), re.MULTILINE
        )
        return float(found[1]) if found else 0.0

    answered = 'capsar_requests_total{route="/v1/analyze",status="200"}'
    before, batches = count(answered), count("capsar_batch_texts_count")
    service.ask("/v1/analyze", {"texts": [TEXT] * 3})
    assert count(answered) == before + 1
    assert count("capsar_batch_texts_count") == batches + 1
    assert count("capsar_queue_chars") == 0
    assert count("capsar_shed_total") == 0


def test_logs_are_structured_and_hold_no_text(service: Running) -> None:
    secret = "Zanzibar"
    service.ask("/v1/analyze", {"text": secret})
    service.ask("/v1/classify", {"text": secret, "aspects": ["Quagga"]})
    service.ask(f"/{secret}?text={secret}")
    service.ask("/v1/analyze", body=f'{{"text": "{secret}'.encode())
    service.ask("/v1/analyze", {secret: secret})
    logged = service.log()
    assert secret not in logged
    assert "Quagga" not in logged
    requests = [record for record in service.records() if record["event"] == "request"]
    assert {"route", "status", "ms", "id", "time", "level"} <= set(requests[-1])
    assert requests[-1]["status"] == 422


def test_a_request_has_the_name_its_client_gave_it(service: Running) -> None:
    for given in (
        "a8098c1a-f86e-11da-bd1a-00112444be1e",
        "Root=1-67891233-abc:7/8+9@x_y.z",
        "x" * 128,
    ):
        _, headers, _ = service.ask("/v1/models", headers={"x-request-id": given})
        assert headers["x-request-id"] == given
        wait_until(lambda given=given: service.records()[-1]["id"] == given, 10)  # type: ignore[misc]
    for given in ("", "two words", "x" * 129, '"quoted"', "caf\xe9", "a\tb"):
        _, headers, _ = service.ask("/v1/models", headers={"x-request-id": given})
        assert re.fullmatch("[0-9a-f]{16}", headers["x-request-id"])
        assert given not in service.log() or not given


def test_who_has_no_key_is_not_answered(guarded: Running) -> None:
    asked = {"text": TEXT}
    for given, error, challenge, logged in (
        ({}, "key_needed", "Bearer", "no key"),
        ({"authorization": KEY}, "key_needed", "Bearer", "no key"),
        ({"authorization": "Bearer "}, "key_needed", "Bearer", "no key"),
        (
            {"authorization": "Bearer wrong"},
            "key_unknown",
            'Bearer error="invalid_token"',
            "unknown key",
        ),
    ):
        status, headers, body = guarded.ask("/v1/analyze", asked, headers=given)
        assert status == 401
        assert headers["www-authenticate"] == challenge
        assert json.loads(body)["error"] == error
        assert KEY not in body.decode()
        assert "wrong" not in body.decode()
        log = f'"id": "{headers["x-request-id"]}", "refused": "{logged}"'
        wait_until(lambda log=log: log in guarded.log(), 10)  # type: ignore[misc]
    assert guarded.ask("/metrics")[0] == 401
    assert guarded.ask("/v1/models")[0] == 401
    assert guarded.ask("/healthz")[0] == guarded.ask("/")[0] == 200
    allowed = {"authorization": f"bearer {KEY}"}
    assert guarded.ask("/v1/analyze", asked, headers=allowed)[0] == 200
    assert guarded.ask("/metrics", headers=allowed)[0] == 200
    assert guarded.records()[-1]["key"] == "shop"
    assert KEY not in guarded.log()


def test_pages_of_other_origins_ask_only_where_allowed(guarded: Running) -> None:
    preflight = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-request-id",
        "origin": "https://shop.example",
    }
    status, headers, _ = guarded.ask("/v1/analyze", method="OPTIONS", headers=preflight)
    assert status == 200
    assert headers["access-control-allow-origin"] == "https://shop.example"
    preflight["origin"] = "https://evil.example"
    status, headers, _ = guarded.ask("/v1/analyze", method="OPTIONS", headers=preflight)
    assert status == 400
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("content", ["", "abc shop\n", f"{'0' * 64}\n", KEY, "\xff"])
def test_a_bad_file_of_keys_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError) as told:
        read_keys(path)
    assert KEY not in str(told.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"workers": 0}, "--workers"),
        ({"port": 70_000}, "--port"),
        ({"origins": ("*",)}, "--allow-origin"),
        ({"log_level": "loud"}, "--log-level"),
        ({"limits": Limits(texts=-1)}, "texts"),
    ],
)
def test_settings_are_checked(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Settings(**given)


def test_what_keeps_a_service_from_starting_is_told(service: Running) -> None:
    for arguments, told in (
        (["--port", service.port], "Choose another --host or --port"),
        (["--model", "absent"], "not a bundle"),
        (["--api-keys", "absent.txt"], "Cannot read the keys"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "capsar", "serve", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 2
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_a_missing_extra_is_named() -> None:
    code = """
import sys
sys.modules["uvicorn"] = None
sys.argv = ["capsar", "serve"]
from capsar.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'capsar[serve]'" in done.stderr


def test_the_typed_client_asks_and_waits(guarded: Running) -> None:
    ours = client.Client(guarded.url + "/", KEY)
    documents = ours.analyze([TEXT, "Fine."])
    assert [document["text"] for document in documents] == [TEXT, "Fine."]
    assert ours.classify(TEXT, ["food"])["aspects"][0]["text"] == "food"
    place: client.Place = {"start": 6, "end": 10}
    questions: list[client.Question] = [
        {"text": TEXT, "aspects": ["soup"]},
        {"text": TEXT, "aspects": [place]},
    ]
    answers = ours.classify_many(questions)
    assert [document["aspects"][0]["text"] for document in answers] == ["soup", "food"]
    assert ours.explain(TEXT, place)["aspect"] == place
    assert ours.models()["models"][0]["name"] == DEFAULT_MODEL
    for key, error in (("", "key_needed"), ("wrong", "key_unknown")):
        with pytest.raises(client.RefusedError) as refused:
            client.Client(guarded.url, key).analyze([TEXT])
        assert (refused.value.status, refused.value.error) == (401, error)
        wait_until(lambda refused=refused: refused.value.request_id in guarded.log(), 10)  # type: ignore[misc]
    assert KEY not in repr(ours)


def test_the_typed_client_is_told_where_to_ask(guarded: Running) -> None:
    done = subprocess.run(
        [sys.executable, client.__file__, TEXT],
        env=os.environ | {"CAPSAR_URL": guarded.url, "CAPSAR_KEY": KEY},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "food" in done.stdout


@pytest.mark.parametrize(
    ("typed", "schema"),
    [
        (client.Aspect, "AspectAnswer"),
        (client.Document, "Document"),
        (client.Explanation, "ExplanationAnswer"),
        (client.Model, "ModelAnswer"),
        (client.Models, "Models"),
        (client.Limits, "RequestLimits"),
        (client.Place, "Span"),
        (client.Question, "Question"),
    ],
)
def test_the_typed_client_knows_every_field(service: Running, typed: Any, schema: str) -> None:
    document = json.loads(service.ask("/v1/openapi.json")[2])
    described = document["components"]["schemas"][schema]
    assert set(get_type_hints(typed)) == set(described["properties"])
    assert typed.__required_keys__ == set(described["required"])


def test_the_openapi_document_has_every_field_of_an_answer(service: Running) -> None:
    schemas = json.loads(service.ask("/v1/openapi.json")[2])["components"]["schemas"]
    overlong = " ".join(["and the soup was cold"] * 80)
    told = json.loads(service.ask("/v1/classify", {"text": overlong, "aspects": ["soup"]})[2])
    explained = json.loads(service.ask("/v1/explain", {"text": TEXT})[2])
    models = json.loads(service.ask("/v1/models")[2])
    for answer, schema in (
        (told, "Document"),
        (told["aspects"][0], "AspectAnswer"),
        (explained, "ExplanationAnswer"),
        (models, "Models"),
        (models["models"][0], "ModelAnswer"),
        (models["limits"], "RequestLimits"),
    ):
        assert set(answer) == set(schemas[schema]["properties"])
