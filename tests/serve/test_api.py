"""What the service answers, to whom, and what it says about itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import client
import pytest

import capsar
from capsar.errors import ConfigError
from capsar.hub import DEFAULT_MODEL
from capsar.serve.keys import read_keys
from capsar.serve.settings import Limits, Settings
from running import Running, running

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


@pytest.mark.parametrize(
    ("path", "content", "status", "told"),
    [
        ("/v1/classify", {"text": TEXT, "aspects": ["stew"]}, 422, "'stew' does not occur"),
        ("/v1/classify", {"text": TEXT, "aspects": []}, 422, "aspects"),
        ("/v1/classify", {"text": TEXT, "aspects": [{"start": 9, "end": 3}]}, 422, "start < end"),
        ("/v1/classify", {"text": TEXT, "aspects": [{"start": 0, "end": 99}]}, 422, "outside"),
        ("/v1/classify", {"text": "a b", "aspects": ["a"] * 65}, 422, "At most 64 aspects"),
        ("/v1/analyze", {"text": 3}, 422, "one.text: Input should be a valid string"),
        ("/v1/analyze", {"text": TEXT, "texts": [TEXT]}, 422, "many.text: Extra inputs"),
        ("/v1/analyze", {"texts": []}, 422, "many.texts"),
        ("/v1/analyze", [TEXT], 422, "body"),
        ("/v1/analyze", {"texts": [TEXT] * 513}, 422, "At most 512 texts a request, got 513"),
        ("/v1/analyze", {"text": "x" * 20_001}, 422, "may have 20000 characters, got 20001"),
        ("/v1/analyze", {"texts": ["x" * 20_000] * 4}, 413, "65536 characters of work"),
        ("/v1/explain", {"text": TEXT, "aspect": 7}, 422, "aspect"),
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
    assert set(answer) == {"error", "message"}


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


def test_who_has_no_key_is_not_answered(guarded: Running) -> None:
    asked = {"text": TEXT}
    for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": KEY}):
        status, headers, body = guarded.ask("/v1/analyze", asked, headers=given)
        assert status == 401
        assert headers["www-authenticate"] == "Bearer"
        assert KEY not in body.decode()
    assert guarded.ask("/metrics")[0] == 401
    assert guarded.ask("/v1/models")[0] == 401
    assert guarded.ask("/healthz")[0] == guarded.ask("/")[0] == 200
    allowed = {"authorization": f"bearer {KEY}"}
    assert guarded.ask("/v1/analyze", asked, headers=allowed)[0] == 200
    assert guarded.ask("/metrics", headers=allowed)[0] == 200
    assert guarded.records()[-1]["key"] == "shop"
    assert KEY not in guarded.log()


def test_pages_of_other_origins_ask_only_where_allowed(guarded: Running) -> None:
    preflight = {"access-control-request-method": "POST", "origin": "https://shop.example"}
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
    ours = client.Client(guarded.url, KEY)
    documents = ours.analyze([TEXT, "Fine."])
    assert [document["text"] for document in documents] == [TEXT, "Fine."]
    assert ours.classify(TEXT, ["food"])["aspects"][0]["text"] == "food"
    with pytest.raises(client.RefusedError, match="asks for a key"):
        client.Client(guarded.url).analyze([TEXT])
    assert KEY not in repr(ours)
