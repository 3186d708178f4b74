"""The page in a real browser, used as a person would: watch, compare, look, drop photos, teach, undo."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from studio_at_scale import make_run

from coloured import photos_of
from podnet.cli import main
from podnet.report.page import write_page
from podnet.report.plots import draw_run
from podnet.runs.folder import Run
from studio import runs_of, serving

CHROMIUM = os.environ.get("PODNET_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    not CHROMIUM, reason="no Chromium here; install it (apt-get install chromium) or name one in PODNET_CHROMIUM"
)
SCRIPT = "<img src=x onerror=alert(1)>"
PATIENCE = 120  # seconds that anything may take on a busy machine
VIEWS = ("runs", "run", "compare", "model", "try", "teach")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens pages; whatever the page complains of is an error."""
    contexts = []

    def opened(address, **options):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", refused)
        page.on("dialog", lambda dialog: complaints.append(f"a script ran: {dialog.message}"))
        page.on("request", lambda request: asked.append(request.url))
        contexts.append(context)
        page.goto(address)
        page.wait_for_selector("html[data-ready=yes]")
        return page

    def refused(said):
        """By the content security policy; that Plotly asks for more than it needs is known."""
        if "Security Policy" in said.text and not said.location["url"].endswith("/vendor/plotly.js"):
            complaints.append(said.text)

    complaints, asked = [], []
    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert all(url.startswith(("http://127.0.0.1", "data:", "blob:")) for url in asked)  # nothing from elsewhere


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Two runs, one with a script for a name, and a model of colours, one of them a script too."""
    folder = tmp_path_factory.mktemp("shop")
    make_run(folder / "runs" / "first", 4, seed=1, epochs=3, base=4)
    make_run(folder / "runs" / "second", 4, seed=2, epochs=3, base=4, method="ucir")
    make_run(folder / "runs" / SCRIPT, 4, seed=3, epochs=3, base=4)
    photos_of(folder / "photos", "red", "green", "blue")
    (folder / "photos" / "green").rename(folder / "photos" / SCRIPT)
    photos_of(folder / "more", "grey")
    assert main(["learn", str(folder / "m.podnet"), str(folder / "photos"), "--train", "never"]) == 0
    with serving(folder / "runs", folder / "m.podnet") as client:
        client.folder = folder
        yield client


def transfer_of(page, files):
    """Files as the browser hands them over."""
    contents = [(file.name, base64.b64encode(file.read_bytes()).decode()) for file in files]
    return page.evaluate_handle(
        """(contents) => {
            const transfer = new DataTransfer();
            for (const [name, text] of contents) {
                const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
                transfer.items.add(new File([bytes], name, { type: "image/png" }));
            }
            return transfer;
        }""",
        contents,
    )


def drop(page, selector, files):
    """Drop files on an element, as a mouse would."""
    page.dispatch_event(selector, "drop", {"dataTransfer": transfer_of(page, files)})


def until(page, condition, patience=PATIENCE):
    """Wait for what only the test can tell."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        page.wait_for_timeout(20)


def require_accessible(page):
    """axe-core finds nothing to object to."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert {v["id"]: [node["html"] for node in v["nodes"]][:3] for v in found} == {}, page.url


def address_of(shop, view):
    keys = [run["id"] for run in runs_of(shop).values()]
    rest = {"run": f"/{keys[0]}", "compare": f"/{','.join(keys)}"}.get(view, "")
    return f"{shop.address}#/{view}{rest}"


def settled(page, view):
    """Wait until a view shows what it has to show."""
    wanted = {"runs": ".runs tbody tr", "model": ".classes li", "try": ".drop", "teach": ".drop"}
    page.wait_for_selector(wanted.get(view, ".plot[data-drawn=yes]"))


def test_watch_a_run_grow_to_its_end(tmp_path, open_page):
    command = [sys.executable, "-m", "podnet", "run", "--output", str(tmp_path / "runs" / "live")]
    command += ["--classes", "8", "--epochs", "6", "--finetune-epochs", "1", "--threads", "1"]
    with serving(tmp_path / "runs") as client:
        page = open_page(client.address)
        page.get_by_text("No runs yet").wait_for()
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            row = page.locator(".runs tbody tr")
            row.locator(".state.running").wait_for()
            row.get_by_role("link").click()
            page.locator("h1", has_text="live").wait_for()
            counts = []

            def is_done():
                words = page.locator("main .row .soft").first.inner_text()
                counts.extend(words.split()[:1] if words[:1].isdigit() and words.split()[0] not in counts else [])
                return page.locator(".state.done").count() or running.poll() not in (None, 0)

            until(page, is_done, 4 * PATIENCE)  # a whole run: minutes on a very busy machine
            assert running.wait(PATIENCE) == 0
        finally:
            running.kill()
        assert len(counts) >= 2, counts  # it was seen to grow
        page.locator(".state.done").wait_for()
        lines = [json.loads(x) for x in (tmp_path / "runs" / "live" / "results.jsonl").read_text().splitlines()]
        table = page.locator("section.card", has=page.get_by_role("heading", name="Results"))
        table.locator("tbody tr").nth(len(lines) - 1).wait_for()
        last = table.locator("tbody tr").last.inner_text().split()
        assert last[0] == str(lines[-1]["task"])
        assert float(last[3]) == pytest.approx(lines[-1]["accuracy"]["nme"], abs=0.006)


def test_compare_two_runs_by_keyboard_and_take_them_home(shop, open_page):
    page = open_page(address_of(shop, "runs"))
    for name in ("first", "second"):
        page.get_by_label(f"Select {name}").focus()
        page.keyboard.press("Space")
    page.get_by_role("button", name="Compare 2 runs").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".plot[data-drawn=yes]")
    runs = runs_of(shop)
    averages = page.locator("section.card", has=page.get_by_role("heading", name="Averages"))
    text = averages.inner_text()
    for name in ("first", "second"):
        for inference in ("cnn", "nme"):
            assert f"{runs[name]['average'][inference]:.2f}" in text
    assert "lambda" not in text
    legend = page.locator(".plot .legendtext").all_text_contents()
    assert any(label.startswith("ucir (NME)") for label in legend)
    saved = {}
    for kind in ("PNG", "SVG", "CSV"):
        with page.expect_download() as waiting:
            page.get_by_label(f"Accuracy on all classes seen: save as {kind}").click()
        saved[kind] = waiting.value.path().read_bytes()
    assert saved["PNG"].startswith(b"\x89PNG")
    assert b"<svg" in saved["SVG"]
    rows = [line.split(",") for line in saved["CSV"].decode().splitlines()]
    assert [row[0] for row in rows[1:]] == ["4", "5", "6", "7"]
    curve = next(i for i, label in enumerate(rows[0]) if label.startswith("podnet (CNN)"))
    assert [float(row[curve]) for row in rows[1:]] == pytest.approx(runs["first"]["curves"]["cnn"], abs=1e-3)


def test_a_run_of_many_classes_fits_and_its_heat_maps_are_labelled(tmp_path, open_page):
    make_run(tmp_path / ("long-name" * 8), 40, epochs=1, base=4)
    with serving(tmp_path) as client:
        page = open_page(f"{client.address}#/run/{next(iter(runs_of(client).values()))['id']}")
        page.set_viewport_size({"width": 1000, "height": 900})
        results = page.get_by_role("region", name="Results, NME, table")
        results.wait_for()
        assert results.evaluate("table => table.scrollWidth <= table.clientWidth")
        for name, label in (("Accuracy matrix", "38: class 41"), ("Confusion matrix", "class 42")):
            heat = page.locator("figure", has=page.get_by_role("heading", name=name))
            heat.locator(".plot[data-drawn=yes]").wait_for()
            heat.locator(".xtick text").first.wait_for(state="attached")
            shown = [heat.locator(f".{axis}tick text").all_text_contents() for axis in "xy"]
            assert all(10 < len(labels) <= 30 for labels in shown)
            assert shown[0][-1] == label
            image = heat.locator(".hm image").first
            assert image.evaluate("image => getComputedStyle(image).imageRendering") == "pixelated"  # not blurred
        with page.expect_download() as waiting:
            page.get_by_label("Results, NME: save as CSV").click()
        assert {"CNN all", "NME all"} < set(waiting.value.path().read_text().splitlines()[0].split(","))
        page.set_viewport_size({"width": 390, "height": 900})
        deadline = time.monotonic() + 30  # the charts follow the window a little later
        while not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            assert time.monotonic() < deadline
            page.wait_for_timeout(50)


def test_what_a_run_takes_is_shown_and_nothing_scrolls_sideways(tmp_path, open_page, browser):
    folder = make_run(tmp_path / "runs" / "large", 3, epochs=1, base=4)
    size = {"parameters": 25_557_032, "multiply_adds": 16_869_405_696}
    kept = {"network": 102_440_000, "exemplars": 2_200_000_000, "method_state": 400_000_000, "class_means": 8_192_000}
    low = {"cnn": -100.0, "nme": -100.0}
    more = size | {"bytes": kept, "memory": 20_000, "backward_transfer": low, "learning_accuracy": low}
    lines = [json.loads(line) | more for line in (folder / "results.jsonl").read_text().splitlines()]
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with serving(tmp_path / "runs") as client:
        page = open_page(address_of(client, "run"))
        page.set_viewport_size({"width": 1400, "height": 900})
        results = page.get_by_role("region", name="Results, NME, table")
        results.wait_for()
        assert results.evaluate("table => table.scrollWidth <= table.clientWidth")
        assert results.locator("tbody tr").last.inner_text().split()[-4:-1] == ["-100", "-100", "2710.63"]
        page.get_by_text("25,557,032 parameters, 16869.4 million multiply-adds an image").wait_for()
        chart = page.locator("figure", has=page.get_by_role("heading", name="Megabytes kept"))
        chart.locator(".plot[data-drawn=yes]").wait_for()
        chart.get_by_text("As a table").click()
        assert chart.locator("tbody tr").last.inner_text().split() == ["2", "102.44", "2200", "400", "8.19"]
        with page.expect_download() as waiting:
            page.get_by_label("Results, NME: save as CSV").click()
        header, *_, last = waiting.value.path().read_text().splitlines()
        saved = dict(zip(header.split(","), last.split(","), strict=False))
        assert saved["parameters"] == "25557032"
        assert saved["CNN backward transfer"] == "-100"
    run = Run(folder)
    draw_run(run, "large")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(write_page(run, "large").as_uri())
    tables = page.locator(".wide")
    for number in range(3):  # after each task
        assert tables.nth(number).evaluate("table => table.scrollWidth <= table.clientWidth")
    page.close()


def test_a_comparison_shows_what_there_is(tmp_path, open_page):
    """No options that only one of the methods has; no numbers of classes that only one of the runs had."""
    make_run(tmp_path / "one", 4, epochs=1, base=4, lambda_f=1.0)
    make_run(tmp_path / "two", 2, epochs=1, base=6, method="ucir", lr=0.5)
    with serving(tmp_path) as client:
        page = open_page(address_of(client, "compare"))
        page.wait_for_selector(".plot[data-drawn=yes]")
        page.get_by_text("As a table").click()
        page.get_by_role("region", name="seen, table").locator("tbody tr").first.wait_for()
        tables = page.locator(".wide table")
        cells = tables.locator("td").all_inner_texts()
        assert cells
        assert "—" not in cells
        assert page.get_by_role("region", name="seen, table").locator("tbody th").all_inner_texts() == ["6", "7"]
        options = page.get_by_role("region", name="Settings that differ").locator("tbody th").all_inner_texts()
        assert options == ["method", "base"]


def test_open_the_matrix(shop, open_page):
    page = open_page(f"{shop.address}#/run/{runs_of(shop)['first']['id']}")
    matrix = page.locator("figure", has=page.get_by_role("heading", name="Accuracy matrix"))
    matrix.locator(".plot[data-drawn=yes]").wait_for()
    matrix.get_by_text("As a table").click()
    lines = [json.loads(x) for x in (shop.folder / "runs" / "first" / "results.jsonl").read_text().splitlines()]
    matrix.locator("tbody tr").nth(len(lines) - 1).wait_for()  # the table is filled after it was opened
    shown = [row.split() for row in matrix.locator("tbody tr").all_inner_texts()]
    for line, row in zip(lines, shown, strict=True):
        values = line["accuracy_per_task"]["nme"]
        assert [float(x) for x in row[1 : 1 + len(values)]] == pytest.approx(values, abs=0.006)
        assert row[1 + len(values) :] == ["—"] * (len(lines) - len(values))
    page.get_by_role("radio", name="CNN").check(force=True)
    wanted, other = (lines[-1]["accuracy_per_task"][inference] for inference in ("cnn", "nme"))
    assert wanted != other
    last = matrix.locator("tbody tr").last
    until(page, lambda: [float(x) for x in last.inner_text().split()[1:]] == pytest.approx(wanted, abs=0.006))
    headings = page.locator("h3").all_inner_texts()
    for wanted in ("Each class: when new, and now", "Confusion matrix after the last task", "Losses: train"):
        assert wanted in headings
    page.get_by_text("podnet run --config").wait_for()


def test_drop_teach_recognise_undo(shop, open_page):
    """As somebody with photos would go about it."""
    page = open_page(address_of(shop, "try"))
    drop(page, ".drop", [shop.folder / "photos" / "red" / "2.png", shop.folder / "more" / "grey" / "0.png"])
    page.locator("article .scores li").nth(11).wait_for()  # two photos, two inferences, three classes
    red = page.locator("article", has=page.get_by_role("heading", name="2.png"))
    assert red.locator("section", has_text="nearest mean").locator("li").first.inner_text().startswith("red")
    assert red.locator(".verdict").inner_text().startswith("red")
    assert red.get_by_title("CNN", exact=False).inner_text() == "classifier"
    assert red.locator("canvas").count() == 1
    stranger = page.locator("article", has=page.get_by_role("heading", name="0.png"))
    assert stranger.locator(".verdict").inner_text().startswith("unknown\nNot like any of its classes.")
    page.get_by_role("link", name="Teach").click()
    page.get_by_label("Name of the class").fill("ash")
    drop(page, ".drop", sorted((shop.folder / "more" / "grey").iterdir()))
    page.locator(".thumbs li").nth(9).wait_for()
    assert page.get_by_label("Epochs").is_hidden()  # nothing is trained
    page.get_by_role("button", name="Teach").click()
    page.get_by_text("Learning ash").wait_for()
    page.get_by_text("Learned ash.").wait_for()
    assert "new classes" in page.locator(".notice.good table").first.inner_text()
    page.get_by_text("on 40 photos, each judged by a model that has not seen it.").wait_for()
    page.get_by_text("Each class (").click()
    page.get_by_role("region", name="Each class, table").get_by_role("rowheader", name="ash").wait_for()
    require_accessible(page)
    page.get_by_role("link", name="Try", exact=True).click()
    page.get_by_role("heading", name="Try it").wait_for()
    drop(page, ".drop", [shop.folder / "more" / "grey" / "0.png"])
    answer = page.locator("article .verdict")
    answer.wait_for()
    assert answer.inner_text().startswith("ash")
    page.get_by_role("link", name="Model").click()
    page.get_by_role("heading", name="ash").wait_for()
    page.get_by_role("heading", name="Map of the class means").wait_for()
    assert page.locator(".classes img").count() == 0
    assert page.locator(".classes > li", has_text="kept: features of 10 photos").count() == 4
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("heading", name="ash").wait_for(state="detached")
    assert page.locator(".classes > li").count() == 3
    page.get_by_label("Remove red").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("heading", name="red").wait_for(state="detached")
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("heading", name="red").wait_for()


def test_a_lesson_that_did_harm_is_told_first_and_undone(shop, tmp_path, open_page):
    model = shutil.copy(shop.folder / "m.podnet", tmp_path / "m.podnet")
    photos_of(tmp_path / "more", "red", first=100, count=20)
    with serving(tmp_path / "runs", model) as client:
        page = open_page(f"{client.address}#/teach")
        page.get_by_label("Name of the class").fill("crimson")  # which is red
        drop(page, ".drop", sorted((tmp_path / "more" / "red").iterdir()))
        page.locator(".thumbs li").nth(19).wait_for()
        page.get_by_role("button", name="Teach").click()
        page.get_by_text("Learned crimson.").wait_for()
        warning = page.locator(".notice:visible").first
        warning.get_by_text("WORSE on the old classes").wait_for()
        worse = client.get("/api/teach").json()["worse"]
        assert f"{worse[0]:.1f} % before, {worse[1]:.1f} % now" in warning.inner_text()
        page.get_by_role("link", name="Model", exact=True).click()
        page.get_by_role("heading", name="crimson").wait_for()
        page.get_by_text("WORSE on the old classes").wait_for()
        page.get_by_role("button", name="Undo").click()
        page.get_by_role("heading", name="crimson").wait_for(state="detached")
        assert page.get_by_text("WORSE").count() == 0


def test_a_training_is_followed_and_stopped(tmp_path, shop, open_page):
    model = tmp_path / "trained.podnet"
    options = ["--backbone", "resnet32", "--image-size", "16", "--epochs", "1", "--finetune-epochs", "1"]
    assert main(["learn", str(model), str(shop.folder / "photos"), *options, "--exemplars", "5"]) == 0
    with serving(tmp_path / "runs", model) as client:
        page = open_page(f"{client.address}#/model")
        page.locator(".classes li img").nth(14).wait_for()  # five exemplars of each class
        page.get_by_role("heading", name="Map of the class proxies").wait_for()
        page.get_by_role("link", name="Teach").click()
        page.get_by_label("Name of the class").fill("ash")
        drop(page, ".drop", sorted((shop.folder / "more" / "grey").iterdir()))
        page.locator(".thumbs li").nth(9).wait_for()
        page.get_by_label("Epochs").fill("1000")
        page.get_by_role("button", name="Teach").click()
        page.get_by_text("of 1000 ·").wait_for()
        page.get_by_text(" left ·").wait_for()
        page.get_by_role("button", name="Stop").focus()
        focused = page.evaluate(
            """() => new Promise((resolve) => {
                const words = [...document.querySelectorAll("main p")].find((p) => p.textContent.includes("so far"));
                const seen = new MutationObserver(() => resolve(document.activeElement.textContent));
                seen.observe(words, { childList: true, characterData: true, subtree: true });
            })"""
        )
        assert focused == "Stop"  # news do not take the keyboard away
        page.keyboard.press("Enter")
        page.locator(".notice", has_text="stopped; the model is unchanged.").wait_for()


def test_photos_of_a_class_that_is_discarded_while_they_arrive_are_not_taught(tmp_path, shop, open_page):
    with serving(tmp_path / "runs", tmp_path / "new.podnet") as client:
        page = open_page(f"{client.address}#/teach")
        page.route("**/api/draft?name=*", lambda route: (time.sleep(0.1), route.continue_()))
        page.get_by_label("Name of the class").first.fill("ash")
        drop(page, ".drop >> nth=0", sorted((shop.folder / "more" / "grey").iterdir()))
        page.locator(".thumbs li").first.wait_for()
        page.get_by_role("button", name="discard").first.click()
        page.locator(".thumbs li").first.wait_for(state="detached")
        until(page, lambda: page.get_by_label("Name of the class").count() == 1)
        assert client.get("/api/draft").json() == []
        assert page.evaluate("document.activeElement.textContent") == "Add a class"
        page.get_by_role("button", name="Add a class").click()
        for number in (0, 1):
            page.get_by_label("Name of the class").nth(number).fill("dust")
        drop(page, ".drop >> nth=1", [shop.folder / "more" / "grey" / "0.png"])
        page.get_by_text("dust is named above").wait_for()


def test_a_hidden_page_gives_its_stream_back_and_catches_up(tmp_path, open_page):
    """A browser has six connections to a server; each visible page holds one."""
    hide = """(hidden) => {
        Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    make_run(tmp_path / "one", 1, epochs=1, base=4)
    with serving(tmp_path) as client:
        page = open_page(client.address)
        page.get_by_text("live", exact=True).wait_for()
        page.evaluate(hide, True)
        make_run(tmp_path / "two", 1, epochs=1, base=4)
        until(page, lambda: len(runs_of(client)) == 2)
        assert page.locator(".runs tbody tr").count() == 1
        page.evaluate(hide, False)
        page.get_by_role("link", name="two").wait_for()


def test_the_skip_link_stays_on_the_view(shop, open_page):
    page = open_page(address_of(shop, "teach"))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.locator("h1").inner_text() == "Teach it"


def test_an_address_that_is_no_view_shows_the_runs(shop, open_page):
    page = open_page(f"{shop.address}#/constructor")  # a name that every object of JavaScript has
    assert page.locator("h1").inner_text() == "Runs"
    page = open_page(f"{shop.address}#/run/%")
    page.get_by_role("link", name="Model").click()
    page.get_by_role("heading", name="Model", exact=True).wait_for()


def test_paste_a_photo(shop, open_page):
    page = open_page(address_of(shop, "try"))
    files = transfer_of(page, [shop.folder / "photos" / "blue" / "4.png"])
    page.evaluate("(files) => document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: files }))", files)
    answer = page.locator("article section", has_text="nearest mean").locator("li").first
    answer.wait_for()
    assert answer.inner_text().startswith("blue")


def test_a_photo_that_is_none_is_told_in_words(shop, open_page, tmp_path):
    (tmp_path / "notes.png").write_text("no picture")
    page = open_page(address_of(shop, "try"))
    drop(page, ".drop", [tmp_path / "notes.png"])
    page.get_by_text("the photo cannot be read: not a JPEG").wait_for()


# No transition is under way; what beats for ever does not count.
FINISHED = "document.getAnimations().every((each) => each.effect.getComputedTiming().endTime === Infinity)"


@pytest.mark.parametrize(("theme", "width"), [("light", 360), ("dark", 1280)])
def test_every_view_is_for_everyone(shop, open_page, theme, width):
    """axe-core finds nothing to object to; nothing sticks out of a narrow screen; names are shown as text."""
    page = open_page(shop.address, color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 800})
    for view in VIEWS:
        page.goto(address_of(shop, view))
        settled(page, view)
        page.wait_for_function(FINISHED)
        require_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (view, width)
        if view in ("runs", "compare", "model"):
            assert page.get_by_text(SCRIPT).count() >= 1
        assert page.evaluate("document.documentElement.dataset.theme") == theme


def test_a_run_that_is_deleted_while_it_is_shown(tmp_path, open_page):
    make_run(tmp_path / "one", 2, epochs=1, base=4)
    with serving(tmp_path) as client:
        page = open_page(f"{client.address}#/run/{runs_of(client)['one']['id']}")
        page.wait_for_selector(".plot[data-drawn=yes]")
        shutil.rmtree(tmp_path / "one")
        page.get_by_text("This run does not exist, or its folder was deleted.").wait_for()
        make_run(tmp_path / "one", 3, epochs=1, base=4)
        page.get_by_text("3 of 3 tasks").wait_for()
        assert page.get_by_text("its folder was deleted").is_hidden()


def test_what_is_wrong_with_a_run_stays_on_its_page(tmp_path, open_page):
    """Whatever is answered first: what is damaged, or the rest about the run."""
    (make_run(tmp_path / "one", 2, epochs=1, base=4) / "results.jsonl").write_text("{not json}\n")
    with serving(tmp_path) as client:
        key = runs_of(client)["one"]["id"]
        page = open_page(client.address)
        page.route(f"**/api/runs/{key}", lambda route: (time.sleep(1), route.continue_()))
        page.goto(f"{client.address}#/run/{key}")
        page.get_by_role("heading", name="Reproduce this run").wait_for()
        assert "is damaged" in page.locator("p.notice[role=alert]").inner_text()


def test_the_page_says_when_the_server_is_gone_and_goes_on_when_it_is_back(tmp_path, open_page):
    make_run(tmp_path / "runs" / "one", 1, epochs=1, base=4)
    with serving(tmp_path / "runs") as client:
        port = str(client.base_url.port)
        page = open_page(client.address)
        page.get_by_text("live", exact=True).wait_for()
    page.get_by_text("connection lost, retrying").wait_for()
    make_run(tmp_path / "runs" / "two", 1, epochs=1, base=4)
    with serving(tmp_path / "runs", None, "--port", port):
        page.get_by_role("link", name="two").wait_for()
        assert page.locator(".runs tbody tr").count() == 2


def test_the_api_has_a_page(shop, open_page, browser):
    context = browser.new_context()
    page = context.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"{shop.address}docs")
    page.get_by_text("/api/compare").first.wait_for(timeout=1000 * PATIENCE)
    context.close()
    assert [words for words in said if "Security Policy" in words] == []


def test_the_first_visit_by_a_link_and_the_end_of_the_session(tmp_path, browser):
    """Another site's link to the address with the token; the browser holds the strict cookie back at first."""
    make_run(tmp_path / "one", 1, epochs=1, base=4)
    context = browser.new_context()
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    asked = []
    with serving(tmp_path, None, "--host", "0.0.0.0") as client:
        address = client.address.replace(client.base_url.host, "127.0.0.1")
        link = f'<a href="{address}#/runs">the page</a>'
        page.route("http://other.example/", lambda route: route.fulfill(body=link, content_type="text/html"))
        page.goto("http://other.example/")
        page.on("request", lambda request: asked.append((request.url, request.headers.get("referer"))))
        page.get_by_role("link").click()
        page.get_by_role("link", name="one").wait_for()
        assert page.url.partition("#")[0] == address.partition("?")[0]
        assert page.evaluate("document.cookie") == ""
        assert sum("token" in url for url, _ in asked) == 1  # the first
        assert all("token" not in (referer or "") for _, referer in asked)
    with serving(tmp_path, None, "--host", "0.0.0.0", "--port", str(client.base_url.port)) as client:
        page.get_by_text("a token is needed: open the address that podnet studio printed").wait_for()
        page.goto(client.address.replace(client.base_url.host, "127.0.0.1"))
        page.get_by_role("link", name="one").wait_for()
    context.close()
