"""The viewer of picture regions in a browser: everything is visible, and every region can be reached."""

import pytest

from latentalign.data.region_features import grid_boxes
from latentalign.web.pages import Page, region_viewer, render

pytestmark = pytest.mark.slow

PICTURE = "data:image/gif;base64,R0lGODlhAQABAAAAACw="
CELLS = 49


def look(boxes, prior, posterior):
    return {
        "question_id": 1, "image_id": 5, "question": "what color?", "answer": "red", "predicted": "red",
        "boxes": boxes, "gold": [[0, 0, 0.5, 0.5]], "looks": {"prior": prior, "posterior": posterior},
        "says": [[[f"answer {k}", 0.9], ["blue", 0.1]] for k in range(len(boxes))],
    }  # fmt: skip


GRID = look(
    grid_boxes(7, 7).tolist(),
    [0.2 if k == 24 else 0.8 / (CELLS - 1) for k in range(CELLS)],
    [0.27 if k == 8 else 0.135 if k == 9 else 0.595 / 47 if k < 48 else 0.0 for k in range(CELLS)],
)
BOXES = look(
    [[0.1, 0.1, 0.4, 0.4], [0, 0, 1, 1], [0.3, 0.3, 0.9, 0.8]], [0.2, 0.5, 0.3], [0.99, 0.009, 0.001]
)

PROBE = """
<script>
const seen = {}, at_ = id => document.getElementById(id);
const buttons = () => [...document.querySelectorAll("#look button")];
const shares = () => buttons().map(b => Number(b.style.getPropertyValue("--share")));
const press = key => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const told = () => at_("look-reading").textContent.replaceAll("\\u00a0", " ");
const listed = () => [...document.querySelectorAll("#look-list button")];
seen.regions = buttons().length; seen.strongest = Math.max(...shares()); seen.second = shares()[9];
seen.canvas = [document.querySelector("#look canvas").width, document.querySelector("#look canvas").height];
seen.stops = buttons().filter(b => b.tabIndex === 0).length;
buttons()[8].focus(); seen.first = told();
press("ArrowRight"); seen.right = told(); press("ArrowDown"); seen.down = told(); press("End"); seen.last = told();
seen.listed = listed().length; seen.held = at_("look-held").textContent.replaceAll("\\u00a0", " ");
at_("look-all").click(); seen.all = listed().length;
listed()[1].focus(); seen.from_list = told();
seen.current = document.querySelectorAll("#look [aria-current], #look-list [aria-current]").length;
seen.share_of_page = at_("look").clientWidth / document.querySelector("main").clientWidth;
at_("look-boxes").click(); seen.no_canvas = document.querySelector("#look canvas") === null;
seen.outline = getComputedStyle(buttons()[8]).borderTopColor;
at_("look-next").click(); seen.heat_offered = !at_("look-drawing").hidden;
seen.order = buttons().map(b => b.style.width);
buttons()[2].focus(); press("ArrowDown"); seen.next_rank = told();
press("ArrowDown"); press("ArrowDown"); seen.lowest = told();
at_("look-prior").click(); seen.prior = told(); seen.pictured = at_("look-missing").textContent;
at_("look-next").click(); seen.missing = at_("look-missing").textContent; seen.still = buttons().length;
seen.wide = document.documentElement.scrollWidth <= window.innerWidth;
const out = document.createElement("pre");
out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out);
</script>
"""


@pytest.mark.parametrize("width", [1280, 400])
def test_every_region_is_visible_and_within_reach(browse, tmp_path, width):
    path = tmp_path / "page.html"
    records = [GRID, BOXES, {**BOXES, "image_id": 6}]
    viewer = region_viewer({"marginal": records}, {"5": PICTURE}, missing="Because.")
    page = Page("t", "s", viewers=[viewer])
    path.write_text(render(page) + PROBE, encoding="utf-8")
    seen = browse(path.as_uri(), width)
    assert seen["regions"] == CELLS  # those without any probability too
    assert (seen["strongest"], seen["second"]) == (1, 0.5)  # relative to the most probable region
    assert seen["canvas"] == [7, 7]
    assert seen["stops"] == 1  # the Tab key enters the picture once, arrow keys go on
    assert seen["first"].startswith(
        "looks here with 27.0 % (rank 1 of 49); if it looked here, it would say answer 8"
    )
    assert "rank 2 of 49" in seen["right"]
    assert "answer 16 0.90" in seen["down"]
    assert seen["last"].startswith("looks here with 0.0 % (rank 49 of 49)")
    assert (seen["listed"], seen["all"]) == (8, CELLS)
    assert seen["held"] == "The 8 most probable of 49 regions hold 48.1 %."
    assert "rank 2 of 49" in seen["from_list"]
    assert seen["current"] == 2  # on the picture and in the list
    assert seen["share_of_page"] > 0.6
    assert seen["no_canvas"]
    assert seen["outline"] in ("rgb(214, 130, 255)", "rgba(214, 130, 255, 1)")
    assert not seen["heat_offered"]  # these regions are no grid
    assert seen["order"] == ["100%", "60%", "30%"]  # small regions lie above large ones
    assert "rank 2 of 3" in seen["next_rank"]
    assert seen["lowest"].startswith("looks here with 0.1 % (rank 3 of 3)")
    assert seen["prior"].startswith("looks here with 50.0 % (rank 1 of 3)")
    assert seen["pictured"] == ""
    assert seen["missing"] == "There is no file of picture 6. Because."
    assert seen["still"] == 3  # regions are shown without a picture too
    assert seen["wide"]
