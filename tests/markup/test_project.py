"""Elements follow their words; nothing is lost, duplicated or left open."""

import pytest

import latentalign
from latentalign.errors import InputError
from latentalign.markup.project import parse_markup, project


def moved(source, target, links, kind="html", **options):
    return project(source, target, links, kind, **options).text


def straight(n):
    return [(i, i) for i in range(n)]


def test_an_element_covers_the_words_linked_to_its_words():
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (3, 4)]
    assert moved("Das <b>kleine Haus</b> brennt", "the small house is burning", links) == (
        "the <b>small house</b> is burning"
    )
    assert moved("Das kleine Haus <a href='x'>brennt</a>", "the small house is burning", links) == (
        "the small house <a href='x'>is burning</a>"
    )


def test_elements_are_reordered_with_their_words():
    links = [(0, 0), (1, 1), (2, 3), (3, 2)]
    assert moved("Er hat <i>Brot</i> <b>gekauft</b>", "He has bought bread", links) == (
        "He has <b>bought</b> <i>bread</i>"
    )


def test_unlinked_words_and_punctuation_inside_are_covered():
    assert moved("<b>a b</b> c", "A x B C", [(0, 0), (1, 2), (2, 3)]) == "<b>A x B</b> C"
    assert moved("<b>a b</b> , c", "A , B C", [(0, 0), (1, 2), (2, 1), (3, 3)]) == "<b>A , B</b> C"


def test_words_of_others_interrupt_an_element_and_the_most_probable_stretch_is_covered():
    source, target = "I <b>call</b> my mother", "Ich rufe meine Mutter an"
    links = [(0, 0, 1.0), (1, 1, 0.6), (2, 2, 1.0), (3, 3, 1.0), (1, 4, 0.9)]
    found = project(source, target, links)
    assert found.text == "Ich rufe meine Mutter <b>an</b>"
    assert found.spans[0].confidence == pytest.approx(0.45)  # one of its two links leads elsewhere
    assert moved(source, target, links, split=True) == "Ich <b>rufe</b> meine Mutter <b>an</b>"
    assert moved(source.replace("<b>", "<b id=1>"), target, links, split=True).count("<b") == 1


def test_a_word_with_links_into_two_elements_belongs_to_the_first():
    links = [(0, 0), (1, 1), (2, 1), (3, 2)]
    assert moved("<i>geh zu</i> <b>dem Haus</b>", "go tothe house", links) == "<i>go tothe</i> <b>house</b>"
    assert moved("a <b>b</b>", "x", [(0, 0), (1, 0)]) == "<b>x</b>"


def test_an_element_around_everything_stays_around_everything():
    assert moved("<p>a b.</p>", "x y z.", [(1, 1)]) == "<p>x y z.</p>"
    assert moved("<div><p>a <b>b</b></p></div>", "u v w", [(1, 1)]) == "<div><p>u <b>v</b> w</p></div>"


def test_nested_elements_stay_nested_where_their_words_are_apart():
    found = moved("<a><b>X</b> <u>Y</u></a> <i>Z</i>", "x z y", [(0, 0), (1, 2), (2, 1)])
    assert found == "<a><b>x</b> <i>z</i> <u>y</u></a>"
    # The outer element follows the inner one rather than its own words.
    assert moved("<a><b>X</b> Y</a> Z", "y z x", [(0, 2), (1, 0), (2, 1)]) == "y z <a><b>x</b></a>"


def test_punctuation_that_touches_a_word_stays_outside_unless_the_element_has_it():
    links = straight(3)
    assert moved("mag <b>Bücher</b>, ja", "likes books, yes", links) == "likes <b>books</b>, yes"
    assert moved("mag <b>Bücher</b> ja", "likes books, yes", links) == "likes <b>books</b>, yes"
    assert moved("mag <b>Bücher,</b> ja", "likes books, yes", links) == "likes <b>books,</b> yes"
    assert moved("mag „<b>Bücher</b>“ ja", "likes “books” yes", links) == "likes “<b>books</b>” yes"
    assert moved("mag<b>,</b> a b", "likes, x y", links) == "likes<b>,</b> x y"


def test_parts_of_words_stay_parts_where_the_target_has_them():
    assert moved("un<b>believ</b>able x", "unglaublich x", straight(2)) == "<b>unglaublich</b> x"
    assert moved("H<sub>2</sub>O x", "H2O x", straight(2)) == "H<sub>2</sub>O x"
    assert moved("Wort<sup>1</sup>, x", "word1, x", straight(2)) == "word<sup>1</sup>, x"
    assert moved("<b>foo</b><i>bar</i> x", "xyz x", straight(2)) == "<b><i>xyz</i></b> x"
    assert moved("<b>foo</b><i>bar</i> x", "foobar x", straight(2)) == "<b>foo</b><i>bar</i> x"


def test_void_elements_stay_with_their_neighbours():
    assert moved("a<br>b", "A B", straight(2)) == "A<br> B"
    assert moved('<img src=">">a b<br/>', "B A", [(0, 1), (1, 0)]) == '<img src=">">B A<br/>'
    links = [(0, 0), (1, 2), (2, 1)]
    assert moved("a b<wbr> c", "A C B", links) == "A C B<wbr>"
    assert moved("a b <img>c", "A C B", links) == "A <img>C B"
    assert moved("a b<ref/>.", "B A.", [(0, 1), (1, 0)], "xml") == "B<ref/> A."
    assert moved("a b<ref/>, c", "A B, C", straight(3), "xml") == "A B<ref/>, C"
    assert moved("<a><img></a> b", "B", [(0, 0)]) == "<a><img></a>B"


def test_an_element_without_links_is_kept():
    assert moved("a <b>ja</b> c", "A C", [(0, 0), (2, 1)]) == "A<b></b> C"
    found = project("a <b>ja</b> c", "A well C", [(0, 0), (2, 2)])
    assert found.text == "A <b>well</b> C"  # the only words that remain
    assert found.spans[0].confidence == 0
    assert moved("<b>a <i>b</i></b>", "", []) == "<b><i></i></b>"


def test_everything_that_is_no_text_is_kept_byte_for_byte():
    source = "<A  HREF='a>b'\tx=1>a</A ><!-- <b> --> <?p q?>b <script>if (a < b) '</b>'</script>&nbsp;&copy;"
    found = moved(source, "x y\u00a0©&lt;<", straight(3))
    assert found == (
        "<A  HREF='a>b'\tx=1>x</A ><!-- <b> --> <?p q?>y<script>if (a < b) '</b>'</script>&nbsp;&copy;&amp;lt;&lt;"
    )
    xml = "<?xml version='1.0'?><g>ä<![CDATA[ <&> ]]></g>"
    assert moved(xml, "a]]>", [(0, 0)], "xml") == "<?xml version='1.0'?><g>a]]&gt;<![CDATA[ <&> ]]></g>"


def test_sloppy_html_becomes_well_formed():
    assert moved("<li>a<li>b", "A B", straight(2)) == "<li>A</li> <li>B</li>"
    assert moved("<b>a <i>b</b> c</i>", "A B C", straight(3)) == "<b>A <i>B</i></b> C"
    assert moved("a <b b", "A < B", straight(3)) == "A &lt; B"
    assert moved("a <!-- b", "A", [(0, 0)]) == "A<!-- b-->"
    assert moved("</p>a<script>x", "A", [(0, 0)]) == "A<script>x</script>"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a <b>c", "line 1, column 3 of the markup: .*<b> is not closed"),
        ("a\n<b></c>", "line 2, column 1 of the markup: .*<b> is not closed"),
        ("ä & b", "line 1, column 4 of the markup"),
        ("x &nbsp; y", "line 1, column 3 of the markup: .*undefined entity"),
        ("a</b>", "line 1, column 4 of the markup"),
        ("</_><_>", "line 1"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>", "line 1, column 3"),
        ("a\x01", "U\\+0001"),
    ],
)
def test_xml_that_is_not_well_formed_is_refused_with_its_place(source, message):
    with pytest.raises(InputError, match=message):
        project(source, "x", [], "xml")


def test_a_target_that_xml_cannot_represent_is_refused():
    with pytest.raises(InputError, match="the target contains U\\+000C"):
        project("a", "x\f", [], "xml")


def test_elements_may_not_be_nested_without_end():
    for kind in ("html", "xml"):
        with pytest.raises(InputError, match="nested more than 200 deep"):
            project("<b>" * 5000 + "a" + "</b>" * 5000, "x", [(0, 0)], kind)
    many = "".join(f"<b>{i % 10}</b>" for i in range(3000))
    assert moved(many, "x", [(0, 0)]).count("</b>") == 3000


def test_placeholders_are_hidden_and_put_back_with_their_spaces():
    source = "Hallo {name}, wie geht es %s heute?"
    document = parse_markup(source, "placeholders")
    assert document.text == "Hallo , wie geht es heute?"
    links = [(0, 0), (2, 1), (3, 2), (4, 2), (5, 3)]
    assert moved(source, "Hello, how is today?", links, "placeholders") == "Hello {name}, how is %s today?"
    assert moved("{a} {b} x", "X", [(0, 0)], "placeholders") == "{a} {b} X"
    assert moved("x ({n})", "X ()", straight(2), "placeholders") == "X ({n})"
    assert moved("${x}% of {{0}}", "% von", straight(2), "placeholders") == "${x}% von {{0}}"
    assert moved("a @1 b", "A B", straight(2), "placeholders", placeholders=["@\\d"]) == "A @1 B"


def test_a_placeholder_that_the_target_has_already_is_not_repeated():
    assert moved("{a} x {a} {b}", "X {a}", [(0, 0)], "placeholders").count("{a}") == 2
    assert moved("%s x", "X %s", [(0, 0)], "placeholders") == "X %s"


@pytest.mark.parametrize(
    ("patterns", "message"), [(["("], "is no regular expression"), (["x*"], "matches empty text")]
)
def test_patterns_that_cannot_work_are_refused(patterns, message):
    with pytest.raises(InputError, match=message):
        project("x", "y", [], "placeholders", placeholders=patterns)


@pytest.mark.parametrize("link", [(0, 1), (2, 0), (-1, 0), (0.5, 0), (0, 0, 1.5), (0, 0, float("nan")), (0,)])
def test_links_that_fit_no_word_are_refused(link):
    with pytest.raises(InputError, match="link"):
        project("<b>a</b> b", "x", [link])


def test_the_kind_must_be_known():
    with pytest.raises(InputError, match="html, xml, placeholders, got 'rtf'"):
        project("a", "b", [], "rtf")


def test_confidence_is_the_share_of_agreeing_links():
    def confidence(links):
        return project("<b>a b</b> c", "x y z", links).spans[0].confidence

    assert confidence(straight(3)) == 1
    assert confidence([(0, 0), (2, 2)]) == 0.5  # b has no link
    assert confidence([(0, 0), (1, 1), (2, 1)]) == pytest.approx(2 / 3)
    assert confidence([(0, 0, 0.9), (1, 1, 0.5)]) == pytest.approx(0.7)


def test_the_library_offers_it():
    found = latentalign.project("<b>ja</b>!", "yes!", [(0, 0)])
    assert isinstance(found, latentalign.Projection)
    assert found.spans == (latentalign.ProjectedSpan("<b>", (0, 2), (0, 3), 1.0),)
