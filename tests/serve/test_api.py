"""The API: responses, errors, API keys, CORS, logs and metrics."""

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
from capsar.bundle import DEFAULT_MODEL
from capsar.errors import ConfigError
from capsar.serve.settings import TEXT_CHARS, Settings, read_api_keys
from serve.load import Clients
from serve.service import Running, running, stopped_at_the_end, wait_until

TEXT = "Great food, terrible service, and the soup was cold."
KEY = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(Settings(port=0), tmp_path_factory.mktemp("serve")) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that requires an API key and allows one other origin."""
    folder = tmp_path_factory.mktemp("guarded")
    path = folder / "keys.txt"
    path.write_text(f"# ours\n{sha256(KEY.encode()).hexdigest()}  shop\n")
    settings = Settings(port=0, api_keys=read_api_keys(path), origins=("https://shop.example",))
    with running(settings, folder) as found:
        yield found


@pytest.mark.parametrize("text", [TEXT, "", "Soßen! 🍜 was très bon — “the staff”\u202e."])
def test_response_equals_output_of_command_line(service: Running, text: str) -> None:
    status, headers, body = service.request("/v1/analyze", {"text": text})
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert body.decode() == _cli(text).strip()
    content = json.loads(body)
    assert all(text[a["start"] : a["end"]] == a["text"] for a in content["aspects"])
    several = json.loads(service.request("/v1/analyze", {"texts": [text, TEXT * 3, text]})[2])
    for found in (several["documents"][0], several["documents"][2]):
        assert_same(found, content)


def assert_same(found: dict[str, Any], other: dict[str, Any]) -> None:
    """Assert equality up to rounding: the last digit of a score depends on the batch."""
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


def test_classify_equals_command_line(service: Running) -> None:
    content = {"text": TEXT, "aspects": ["food", "soup"]}
    _, _, body = service.request("/v1/classify", content)
    assert body.decode() == _cli(TEXT, "--aspect", "food", "--aspect", "soup").strip()
    by_offsets = {"text": TEXT, "aspects": [{"start": 6, "end": 10}]}
    batch = {"requests": [by_offsets, content]}
    several = json.loads(service.request("/v1/classify", batch)[2])
    single = json.loads(body)
    assert_same(several["documents"][1], single)
    assert_same(several["documents"][0], {**single, "aspects": single["aspects"][:1]})


def test_themes_equal_analyzer(service: Running) -> None:
    themes = [{"name": "Food", "terms": ["soup"]}, {"name": "Staff", "description": "Waiters."}]
    others = [{"name": "Else"}]
    requests = [{"texts": [TEXT, "Fine."], "themes": some} for some in (themes, others, None)]
    for content in requests:
        found = json.loads(service.request("/v1/analyze", content)[2])["documents"][0]["aspects"]
        given = content["themes"]
        [expected] = capsar.load().analyze(
            [TEXT], themes=None if given is None else capsar.Themes.from_dicts(given)
        )
        assert [a.get("theme") for a in found] == [a.theme for a in expected]


@pytest.mark.parametrize(
    ("themes", "reason"),
    [
        ([], "themes"),
        ([{"name": "A"}, {"name": "A"}], "Two themes have the name 'A'"),
        ([{"name": "A", "parent": "B"}], "is not a theme"),
        ([{"name": "A", "words": []}], "words"),
        ("restaurants", "themes"),
        ([{"name": "A", "terms": ["x"] * 51}], "terms"),
    ],
)
def test_invalid_themes_are_rejected(service: Running, themes: object, reason: str) -> None:
    status, _, body = service.request("/v1/analyze", {"text": TEXT, "themes": themes})
    assert status == 422
    assert reason in json.loads(body)["message"]


def test_explain_equals_analyzer(service: Running) -> None:
    found = json.loads(service.request("/v1/explain", {"text": TEXT, "aspect": "soup"})[2])
    expected = capsar.load().explain(TEXT, "soup")
    assert [tuple(word) for word in found["words"]] == list(expected.words)
    for polarity, length in expected.lengths.items():
        assert found["lengths"][polarity] == pytest.approx(length, abs=1e-5)
        for name in ("aspect_scores", "importance", "attributions"):
            scores = getattr(expected, name)[polarity]
            assert found[name][polarity] == pytest.approx(scores, abs=1e-4)
    assert json.loads(service.request("/v1/explain", {"text": TEXT})[2])["aspect"] is None


def batch_of(text: object, aspects: list[Any]) -> dict[str, Any]:
    """Return a batch of three; only the third item may be invalid."""
    good = {"text": TEXT, "aspects": ["food"]}
    return {"requests": [good, good, {"text": text, "aspects": aspects}]}


@pytest.mark.parametrize(
    ("path", "content", "status", "message"),
    [
        (
            "/v1/classify",
            {"text": TEXT, "aspects": ["stew"]},
            422,
            "aspects[0]: Aspect 'stew' does",
        ),
        (
            "/v1/classify",
            {"text": TEXT, "aspects": []},
            422,
            "aspects: List should have at least",
        ),
        (
            "/v1/classify",
            batch_of(TEXT, [{"start": 9, "end": 3}]),
            422,
            "[2].aspects[0]: start must be below",
        ),
        (
            "/v1/classify",
            batch_of(TEXT, [{"start": 0, "end": 99}]),
            422,
            "[0]: The aspect at 0:99 ends outside the text",
        ),
        (
            "/v1/classify",
            batch_of(TEXT, ["soup", "stew"]),
            422,
            "requests[2].aspects[1]: Aspect 'stew'",
        ),
        ("/v1/classify", batch_of(TEXT, [3]), 422, "requests[2].aspects[0]: must be a string, or"),
        ("/v1/classify", batch_of(TEXT, [{}]), 422, "requests[2].aspects[0].start: Field required"),
        (
            "/v1/classify",
            batch_of(3, ["soup"]),
            422,
            "requests[2].text: Input should be",
        ),
        (
            "/v1/classify",
            batch_of("a b", ["a"] * 65),
            422,
            "requests[2].aspects: List should have at most 64",
        ),
        (
            "/v1/classify",
            batch_of("x" * 20_001, ["x"]),
            422,
            "[2].text: String should have at",
        ),
        (
            "/v1/analyze",
            {"text": 3},
            422,
            "should be a valid string. See /v1/openapi",
        ),
        (
            "/v1/analyze",
            {"text": TEXT, "texts": [TEXT]},
            422,
            "object with text, or with texts",
        ),
        ("/v1/analyze", {"texts": []}, 422, "texts: List should have at least"),
        (
            "/v1/analyze",
            {"texts": [TEXT, None, TEXT]},
            422,
            "texts[1]: Input should be",
        ),
        (
            "/v1/analyze",
            {"texts": [3] * 7},
            422,
            "be a valid string; and 2 more.",
        ),
        ("/v1/analyze", [TEXT], 422, "body: Input should be a valid dictionary"),
        ("/v1/analyze", {"texts": [TEXT] * 513}, 422, "texts: List should have at most 512 items"),
        (
            "/v1/analyze",
            {"text": "x" * 20_001},
            422,
            "text: String should have at most 20000",
        ),
        (
            "/v1/analyze",
            {"texts": ["x", "x" * 20_001]},
            422,
            "texts[1]: String should have",
        ),
        ("/v1/analyze", {"texts": ["x" * 20_000] * 4}, 413, "65536 characters of work, got 80128"),
        ("/v1/analyze", {"text": TEXT, "txet": 1}, 422, "txet: Extra inputs are not permitted"),
        ("/v1/analyze", {"text": TEXT, "model": "big"}, 422, "model: this service has base, not"),
        ("/v1/classify", {"text": TEXT}, 422, "body: must be an object with text and aspects, or"),
        ("/v1/explain", {"text": TEXT, "aspect": 7}, 422, "aspect: must be a string, or"),
        ("/v1/explain", {"text": TEXT, "aspect": "stew"}, 422, "aspect: Aspect 'stew' does not"),
        ("/v1/nothing", {}, 404, "Not Found"),
        ("/v1/analyze/", {}, 404, "Not Found"),
        ("/healthz", {}, 405, "Method Not Allowed"),
    ],
)
def test_invalid_requests_are_rejected_with_a_reason(
    service: Running, path: str, content: object, status: int, message: str
) -> None:
    got, _, body = service.request(path, content)
    error = json.loads(body)
    assert got == status, error
    assert message in error["message"]
    assert not re.search("<name>|<offsets>|Span|Offsets", error["message"])  # no internal names
    assert set(error) == {"error", "message"}


def test_batch_with_missing_aspects_names_the_first_ones(service: Running) -> None:
    aspects = [["food"], ["stew"]] * 40
    content = {"requests": [{"text": TEXT, "aspects": each} for each in aspects]}
    message = json.loads(service.request("/v1/classify", content)[2])["message"]
    named = [int(number) for number in re.findall(r"requests\[(\d+)\]\.aspects\[0\]", message)]
    assert named == [1, 3, 5, 7, 9]


def test_invalid_json_is_reported_with_its_position(service: Running) -> None:
    body = b'{"texts": [\n  "fine",\n  "not so" "fine"\n]}'
    message = json.loads(service.request("/v1/analyze", body=body)[2])["message"]
    assert message.startswith("body: invalid JSON at character 33: Expecting ',' delimiter")


def test_only_json_is_accepted(service: Running) -> None:
    for headers in (
        {"content-type": "text/plain"},
        {"content-encoding": "gzip"},
        {"content-type": "application/x-www-form-urlencoded"},
    ):
        assert service.request("/v1/analyze", {"text": TEXT}, headers=headers)[0] == 415
    with_charset = {"content-type": "Application/JSON; charset=utf-8"}
    assert service.request("/v1/analyze", {"text": TEXT}, headers=with_charset)[0] == 200


def test_every_response_has_security_headers(service: Running) -> None:
    for path in ("/", "/v1/models", "/nothing", "/metrics"):
        _, headers, _ = service.request(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers
        assert headers["cache-control"] == "no-store"
    assert service.request("/", method="HEAD")[0] == 200


def test_openapi_document_matches_the_service(service: Running) -> None:
    document = json.loads(service.request("/v1/openapi.json")[2])
    num_examples = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method != "post":
                assert service.request(path)[0] == 200
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            name = schema["$ref"].rpartition("/")[2]
            for example in document["components"]["schemas"][name]["examples"]:
                assert service.request(path, example)[0] == 200
                num_examples += 1
            assert operation["responses"]["503"]["headers"]["Retry-After"]
    assert num_examples == 6
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert named <= set(document["components"]["schemas"])


def test_models_and_limits_are_listed(service: Running) -> None:
    content = json.loads(service.request("/v1/models")[2])
    assert len(content["models"][0]["sha256"]) == 64
    assert content["models"][0]["name"] == DEFAULT_MODEL
    assert content["limits"]["text_chars"] == TEXT_CHARS


def test_metrics_count_requests_and_batches(service: Running) -> None:
    def count(name: str) -> float:
        found = re.search(
            rf"^{re.escape(name)} (\S+)$", service.request("/metrics")[2].decode(), re.MULTILINE
        )
        return float(found[1]) if found else 0.0

    succeeded = 'capsar_requests_total{route="/v1/analyze",status="200"}'
    before, batches = count(succeeded), count("capsar_batch_texts_count")
    service.request("/v1/analyze", {"texts": [TEXT] * 3})
    assert count(succeeded) == before + 1
    assert count("capsar_batch_texts_count") == batches + 1
    assert count("capsar_queue_chars") == 0
    assert count("capsar_shed_total") == 0


def test_logs_are_structured_and_contain_no_text(service: Running) -> None:
    secret = "Zanzibar"
    service.request("/v1/analyze", {"text": secret})
    service.request("/v1/classify", {"text": secret, "aspects": ["Quagga"]})
    service.request(f"/{secret}?text={secret}")
    service.request("/v1/analyze", body=f'{{"text": "{secret}'.encode())
    service.request("/v1/analyze", {secret: secret})
    logged = service.log()
    assert secret not in logged
    assert "Quagga" not in logged
    requests = [record for record in service.records() if record["event"] == "request"]
    assert {"route", "status", "ms", "id", "time", "level"} <= set(requests[-1])
    assert requests[-1]["status"] == 422


def test_request_id_of_the_client_is_used(service: Running) -> None:
    for given in (
        "a8098c1a-f86e-11da-bd1a-00112444be1e",
        "Root=1-67891233-abc:7/8+9@x_y.z",
        "x" * 128,
    ):
        _, headers, _ = service.request("/v1/models", headers={"x-request-id": given})
        assert headers["x-request-id"] == given
        wait_until(lambda given=given: service.records()[-1]["id"] == given, 10)  # type: ignore[misc]
    for given in ("", "two words", "x" * 129, '"quoted"', "caf\xe9", "a\tb"):
        _, headers, _ = service.request("/v1/models", headers={"x-request-id": given})
        assert re.fullmatch("[0-9a-f]{16}", headers["x-request-id"])
        assert given not in service.log() or not given


def test_requests_without_a_valid_key_are_rejected(guarded: Running) -> None:
    content = {"text": TEXT}
    for given, error, challenge, logged in (
        ({}, "missing_api_key", "Bearer", "no key"),
        ({"authorization": KEY}, "missing_api_key", "Bearer", "no key"),
        ({"authorization": "Bearer "}, "missing_api_key", "Bearer", "no key"),
        (
            {"authorization": "Bearer wrong"},
            "invalid_api_key",
            'Bearer error="invalid_token"',
            "unknown key",
        ),
    ):
        status, headers, body = guarded.request("/v1/analyze", content, headers=given)
        assert status == 401
        assert headers["www-authenticate"] == challenge
        assert json.loads(body)["error"] == error
        assert KEY not in body.decode()
        assert "wrong" not in body.decode()
        log = f'"id": "{headers["x-request-id"]}", "refused": "{logged}"'
        wait_until(lambda log=log: log in guarded.log(), 10)  # type: ignore[misc]
    assert guarded.request("/metrics")[0] == 401
    assert guarded.request("/v1/models")[0] == 401
    assert guarded.request("/healthz")[0] == guarded.request("/")[0] == 200
    allowed = {"authorization": f"bearer {KEY}"}
    assert guarded.request("/v1/analyze", content, headers=allowed)[0] == 200
    assert guarded.request("/metrics", headers=allowed)[0] == 200
    assert guarded.records()[-1]["key"] == "shop"
    assert KEY not in guarded.log()


def test_other_origins_must_be_allowed(guarded: Running) -> None:
    preflight = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-request-id",
        "origin": "https://shop.example",
    }
    status, headers, _ = guarded.request("/v1/analyze", method="OPTIONS", headers=preflight)
    assert status == 200
    assert headers["access-control-allow-origin"] == "https://shop.example"
    preflight["origin"] = "https://evil.example"
    status, headers, _ = guarded.request("/v1/analyze", method="OPTIONS", headers=preflight)
    assert status == 400
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("content", ["", "abc shop\n", f"{'0' * 64}\n", KEY, "\xff"])
def test_bad_key_file_is_rejected_without_quoting_it(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError) as error:
        read_api_keys(path)
    assert KEY not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"origins": ("*",)}, "--allow-origin"),
        ({"origins": ("https://*.shop.example",)}, "--allow-origin"),
        ({"origins": ("https://shop.example/",)}, "--allow-origin"),
        ({"origins": ("https://shop.example https://b.example",)}, "--allow-origin"),
        ({"models": ()}, "--model"),
        ({"models": ("base", "base")}, "--model"),
    ],
)
def test_settings_are_validated(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(**arguments)


def test_model_may_have_a_name_and_its_folder_an_equals_sign() -> None:
    for model, sources in (
        ("phones=/data/lr=0.1/bundle", {"phones": "/data/lr=0.1/bundle"}),
        ("/data/lr=0.1/bundle", {"/data/lr=0.1/bundle": "/data/lr=0.1/bundle"}),
        ("phones=owner/phones@v1", {"phones": "owner/phones@v1"}),
    ):
        assert Settings(models=(model,), origins=("http://localhost:3000",)).sources == sources


def test_options_can_be_environment_variables(tmp_path: Path) -> None:
    variables = {"PORT": "0", "MODEL": "fast second=fast", "ROOT_PATH": "/absa/", "THREADS": "2"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "capsar", "serve"],
            env=os.environ | {f"CAPSAR_SERVE_{name}": value for name, value in variables.items()},
            stderr=log,
        )
    with stopped_at_the_end(process, tmp_path / "log") as found:
        ready = next(record for record in found.records() if record["event"] == "ready")
        assert (ready["models"], ready["threads"]) == (["fast", "second"], 2)
        listed = json.loads(found.request("/v1/models")[2])["models"]
        assert [model["name"] for model in listed] == ["fast", "second"]
        document = json.loads(found.request("/v1/openapi.json")[2])
        assert document["servers"] == [{"url": "/absa"}]


def test_several_models_answer_by_name(tmp_path: Path) -> None:
    models = ("fast", "large=base")
    with running(Settings(port=0, models=models), tmp_path) as found:
        for name, source in (("fast", "fast"), ("large", "base"), (None, "fast")):
            content = {"text": TEXT} | ({"model": name} if name else {})
            body = json.loads(found.request("/v1/analyze", content)[2])
            expected = capsar.load(source).analyze([TEXT])[0]
            scores = [list(aspect["scores"].values()) for aspect in body["aspects"]]
            assert [aspect["text"] for aspect in body["aspects"]] == [a.text for a in expected]
            for found_scores, aspect in zip(scores, expected, strict=True):
                assert found_scores == pytest.approx(list(aspect.scores.values()), abs=1e-5)


def test_root_path_of_a_proxy(tmp_path: Path) -> None:
    """A proxy removes the path, or passes it on; both are served."""
    with running(Settings(port=0, models=("fast",), root_path="/absa"), tmp_path) as found:
        assert found.request("/v1/analyze", {"text": TEXT})[0] == 200
        assert found.request("/healthz")[0] == 200
        wait_until(lambda: found.records()[-1].get("route") == "/v1/analyze", 10)


def test_chinese_text_is_admitted_by_its_characters(service: Running) -> None:
    """Ten thousand characters that JSON escapes to six bytes each (defect S1)."""
    text = "电池很好，屏幕太暗。" * 1045
    assert len(json.dumps({"text": text})) > 60_000
    load = Clients(service, 6, pause=0)
    try:
        statuses = [service.request("/v1/analyze", {"text": text})[0] for _ in range(4)]
    finally:
        load.stop()
    assert statuses == [200] * 4


def test_startup_errors_are_reported(service: Running) -> None:
    for arguments, message in (
        (["--port", service.port], "Choose another --host or --port"),
        (["--model", "absent"], "not a bundle"),
        (["--api-keys", "absent.txt"], "Cannot read the API keys"),
        (["--port", 70_000], "--port"),
        (["--threads", -1], "--threads"),
        (["--log-level", "loud"], "--log-level"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "capsar", "serve", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_missing_extra_is_named() -> None:
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


def test_typed_client(guarded: Running) -> None:
    typed = client.Client(guarded.url + "/", KEY)
    documents = typed.analyze([TEXT, "Fine."])
    assert [document["text"] for document in documents] == [TEXT, "Fine."]
    assert typed.classify(TEXT, ["food"])["aspects"][0]["text"] == "food"
    offsets: client.Offsets = {"start": 6, "end": 10}
    requests: list[client.ClassifyRequest] = [
        {"text": TEXT, "aspects": ["soup"]},
        {"text": TEXT, "aspects": [offsets]},
    ]
    documents = typed.classify_many(requests)
    assert [document["aspects"][0]["text"] for document in documents] == ["soup", "food"]
    assert typed.explain(TEXT, offsets)["aspect"] == offsets
    assert typed.models()["models"][0]["name"] == DEFAULT_MODEL
    for key, error in (("", "missing_api_key"), ("wrong", "invalid_api_key")):
        with pytest.raises(client.ServiceError) as raised:
            client.Client(guarded.url, key).analyze([TEXT])
        assert (raised.value.status, raised.value.error) == (401, error)
        wait_until(lambda raised=raised: raised.value.request_id in guarded.log(), 10)  # type: ignore[misc]
    assert KEY not in repr(typed)


def test_typed_client_reads_environment_variables(guarded: Running) -> None:
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
        (client.Opinion, "OpinionResult"),
        (client.Theme, "ThemeInput"),
        (client.Aspect, "AspectResult"),
        (client.Document, "Document"),
        (client.Explanation, "ExplainResponse"),
        (client.Model, "ModelInfo"),
        (client.Models, "ModelsResponse"),
        (client.Limits, "RequestLimits"),
        (client.Offsets, "AspectOffsets"),
        (client.ClassifyRequest, "ClassifyItem"),
    ],
)
def test_typed_client_has_every_field(service: Running, typed: Any, schema: str) -> None:
    document = json.loads(service.request("/v1/openapi.json")[2])
    described = document["components"]["schemas"][schema]
    assert set(get_type_hints(typed)) == set(described["properties"])
    assert typed.__required_keys__ == set(described["required"])


def test_openapi_document_has_every_field_of_a_response(service: Running) -> None:
    schemas = json.loads(service.request("/v1/openapi.json")[2])["components"]["schemas"]
    long_text = " ".join(["and the soup was cold"] * 80)
    content = {"text": long_text, "aspects": ["soup"]}
    classified = json.loads(service.request("/v1/classify", content)[2])
    themes = [{"name": "Food"}]
    themed = json.loads(service.request("/v1/analyze", {"text": TEXT, "themes": themes})[2])
    aspect = classified["aspects"][0] | themed["aspects"][0]
    explained = json.loads(service.request("/v1/explain", {"text": TEXT})[2])
    models = json.loads(service.request("/v1/models")[2])
    for content, schema in (
        (classified, "Document"),
        (aspect, "AspectResult"),
        (explained, "ExplainResponse"),
        (models, "ModelsResponse"),
        (models["models"][0], "ModelInfo"),
        (models["limits"], "RequestLimits"),
    ):
        assert set(content) == set(schemas[schema]["properties"])
