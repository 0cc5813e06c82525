"""The page of `evenkeel report`, opened in Chromium: it is drawn, says what the JSON file says, and speaks to nobody."""

import json
import re

import pytest
from playwright.sync_api import sync_playwright

from pages import QUIET, chromium, make_report

NOT_MEASURED = "not measured"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    page, numbers, said = make_report(tmp_path_factory.mktemp("report"))
    return {"url": page.as_uri(), "json": json.loads(numbers.read_text()), "said": said}


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        yield started
        started.close()


class Opened:
    """A page with all that it asked for and complained of."""

    def __init__(self, browser, url, **settings):
        settings.setdefault("viewport", {"width": 1280, "height": 900})
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.asked, self.complaints = [], []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.goto(url)


@pytest.fixture
def open_page(browser, report):
    opened = []

    def open_it(**settings):
        opened.append(Opened(browser, report["url"], **settings))
        return opened[-1]

    yield open_it
    for one in opened:
        one.context.close()


def test_the_page_asks_nobody_for_anything_and_complains_of_nothing(open_page, report):
    opened = open_page()
    page = opened.page
    for select in page.query_selector_all("select"):
        for value in [option.get_attribute("value") for option in select.query_selector_all("option")]:
            select.select_option(value)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_load_state("networkidle")
    assert opened.asked == [report["url"]], "nothing but the page itself"
    assert opened.complaints == []
    assert "<script>alert(1)</script>" in page.title(), "a plan's name is text"


def test_the_first_screen_is_the_verdict_and_three_figures(open_page, report):
    page = open_page().page
    head = report["json"]["heads"][0]
    inside = "box => box.bottom <= innerHeight && box.top >= 0"
    for selector in [".sentence", ".headline >> nth=0", ".headline >> nth=2"]:
        assert page.locator(selector).evaluate(f"e => ({inside})(e.getBoundingClientRect())"), selector
    assert page.locator(".sentence").inner_text() == head["sentence"]
    assert head["sentence"] in report["said"]
    assert page.locator(".headline").count() == len(head["figures"]) == 3
    for shown, figure in zip(page.locator(".headline").all(), head["figures"], strict=True):
        assert figure["shown"] in shown.locator(".value").inner_text()


def test_every_plot_is_drawn_where_it_can_be_seen(open_page):
    page = open_page().page
    plots = [plot for plot in page.locator("svg.plot").all() if plot.is_visible()]
    assert len(plots) >= 10
    for plot in plots:
        plot.scroll_into_view_if_needed()
        name = plot.get_attribute("aria-label")
        box = plot.bounding_box()
        assert box["width"] > 300 and box["height"] > 80, name
        drawn = plot.evaluate(
            """svg => [...svg.querySelectorAll('.m, .l, .dots')].filter(mark => {
                   const inner = mark.getBBox(), view = svg.viewBox.baseVal;
                   const filled = getComputedStyle(mark);
                   return (inner.width > 0 || inner.height > 0) && inner.x >= -1 && inner.x + inner.width <= view.width + 1
                       && (filled.stroke !== 'none' || filled.fill !== 'none');
               }).length"""
        )
        assert drawn > 0 or "Outside the engine" in name, f"nothing is drawn of: {name}"
        titles = plot.locator("text.title").all_text_contents()
        assert titles and all("(" in title or title.startswith(("instances", "Tn")) for title in titles), f"{name}: {titles}"


def shown(value, times):
    """As the page writes a number: three figures, thousands apart."""
    value *= times
    if abs(value) >= 99.95:
        rounded = int(abs(value) + 0.5)
        return ("-" if value < 0 else "") + f"{rounded:,}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


READ_TABLES = """() => Object.fromEntries([...document.querySelectorAll('table[data-table]')].map(table => [
    table.dataset.table, {
        columns: [...table.querySelectorAll('thead th')].map(th => ({key: th.dataset.key, times: Number(th.dataset.times),
            definition: th.title})),
        rows: [...table.querySelectorAll('tbody tr:not(.none)')].map(tr => [...tr.children].map(cell =>
            ({text: cell.textContent, value: cell.dataset.value ?? null}))),
    }]))"""


def test_tables_agree_with_the_json_file(open_page, report):
    on_page, in_file = open_page().page.evaluate(READ_TABLES), report["json"]["tables"]
    assert sorted(on_page) == sorted(in_file) and len(in_file) > 20
    numbers = missing = 0
    for name, table in in_file.items():
        columns = on_page[name]["columns"]
        assert [column["key"] for column in columns] == [column["key"] for column in table["columns"]], name
        assert all(column["definition"] for column in columns), name
        assert len(on_page[name]["rows"]) == len(table["rows"]), name
        for cells, row in zip(on_page[name]["rows"], table["rows"], strict=True):
            for cell, column in zip(cells, columns, strict=True):
                value, where = row[column["key"]], f"{name}.{column['key']}: {cell}"
                if value is None:
                    assert cell["text"] == NOT_MEASURED, where
                    missing += 1
                elif isinstance(value, str):
                    assert cell["text"] == value, where
                else:
                    whole = isinstance(value, int)
                    assert cell["text"] == (f"{value:,}" if whole else shown(value, column["times"])), where
                    assert cell["value"] is None or float(cell["value"]) == value, where
                    numbers += 1
    assert numbers > 500 and missing > 0


def test_values_show_under_the_mouse_and_the_arrow_keys(open_page):
    page = open_page().page
    plot = page.locator("#load svg.plot").first
    plot.scroll_into_view_if_needed()
    plot.locator(".m").first.hover()
    tip = page.locator("#tip")
    assert tip.is_visible() and re.search(r"\d+ tok/s", tip.inner_text()), tip.inner_text()
    before = tip.inner_text()
    plot.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert tip.is_visible() and tip.inner_text() != before
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    course = page.locator("svg.panels:visible").first
    course.scroll_into_view_if_needed()
    course.hover()
    assert re.search(r"^[\d.]+ s\n.*GPU use", tip.inner_text(), re.DOTALL), tip.inner_text()


def test_series_and_instance_counts_can_be_left_out(open_page):
    page = open_page().page
    figure = page.locator("#load figure:visible").first
    series = figure.locator("g[data-series='2 instances']")
    figure.get_by_label("2 instances").uncheck()
    assert not series.is_visible()
    figure.get_by_label("2 instances").check()
    assert series.is_visible()
    rows = page.locator("#t-work tr[data-instances='4']")
    assert rows.first.is_visible()
    page.locator(".filter input[data-instances='4']").uncheck()
    assert not rows.first.is_visible() and page.locator("#t-work tr[data-instances='2']").first.is_visible()


def test_a_row_leads_to_its_point(open_page):
    page = open_page().page
    link = page.locator("#t-work tbody tr a").nth(4)
    place = link.get_attribute("href")
    link.click()
    assert page.locator(place).is_visible() and page.locator(f"{place} svg.panels").is_visible()
    assert page.locator("#point-details > .option[open]").count() == 1


LUMINANCE = """element => {
    const parts = color => color.match(/[\\d.]+/g).slice(0, 3).map(Number).map(c => c / 255)
        .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const light = color => { const [r, g, b] = parts(color); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const of = getComputedStyle(element);
    return [light(of[element.tagName === 'text' || element.classList.contains('l') ? (element.tagName === 'text' ? 'fill' : 'stroke') : 'color']),
        light(getComputedStyle(document.body).backgroundColor)];
}"""


def contrast(locator):
    """WCAG's ratio of an element's colour to the paper."""
    lights = sorted(locator.evaluate(LUMINANCE))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out_in_light_and_dark(open_page, scheme):
    page = open_page(color_scheme=scheme).page
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert contrast(page.locator(".sentence")) > 7
    assert contrast(page.locator("#load svg.plot text").first) > 7
    assert contrast(page.locator("#load svg.plot text.title").first) > 4.5
    for line in page.locator("#load figure:visible").first.locator("path.l").all():
        assert contrast(line) > 3, line.get_attribute("class")


def test_paper_has_all_but_the_controls(open_page):
    page = open_page(color_scheme="dark").page
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for control in ["nav", ".chooser >> nth=0", ".legend input >> nth=0"]:
        assert not page.locator(control).is_visible(), control
    assert page.locator("#scaling svg.plot").first.is_visible() and page.locator("#t-client_ttft").is_visible()
    paper = page.pdf(prefer_css_page_size=True, print_background=True)
    assert paper.startswith(b"%PDF") and len(paper) > 50_000


def test_a_narrow_screen_scrolls_tables_and_not_the_page(open_page):
    page = open_page(viewport={"width": 380, "height": 800}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    assert page.locator(".sentence").is_visible()


def test_without_scripts_there_are_tables_and_plots(open_page):
    page = open_page(java_script_enabled=False).page
    assert page.locator("#t-work").is_visible() and page.locator("#t-client_ttft").is_visible()
    for section in ["scaling", "load", "points"]:
        assert page.locator(f"#{section} svg.plot").first.is_visible(), section
    page.locator("#point-details > .option > summary").nth(2).click()
    assert page.locator("#point-details > .option").nth(2).locator("svg.panels").is_visible()
    assert not page.locator(".filter").is_visible(), "a switch that does nothing is not shown"
