"""The filter language, on the documented examples and on what people get wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.pubsub.filters import FilterError, parse_filter

ATTRIBUTES = {
    "domain": "com",
    "lang": "en",
    "iana.org/language_tag": "en",
    "a-b_1": "",
    "AND": "x",
    "quote": 'say "hi"',
}


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", True),
        ("   ", True),
        ("attributes:domain", True),
        ("attributes:absent", False),
        ("attributes : domain", True),
        ('attributes:"iana.org/language_tag"', True),
        ('attributes.domain = "com"', True),
        ('attributes.domain="com"', True),
        ('attributes.domain = "Com"', False),
        ('attributes.domain != "com"', False),
        ('attributes.domain != "org"', True),
        ('attributes.absent != "com"', True),
        ('attributes.absent = ""', False),
        ('attributes.a-b_1 = ""', True),
        ('attributes."iana.org/language_tag" = "en"', True),
        ('attributes.quote = "say \\"hi\\""', True),
        ('attributes.lang = "\\u0065n"', True),
        ('hasPrefix(attributes.domain, "co")', True),
        ('hasPrefix(attributes.domain, "org")', False),
        ('hasPrefix(attributes.absent, "")', False),
        ('hasPrefix(attributes."iana.org/language_tag", "e")', True),
        ("NOT attributes:domain", False),
        ("NOT NOT attributes:domain", True),
        ("-attributes:absent", True),
        ("- attributes:domain", False),
        ('attributes:domain AND attributes.lang = "en"', True),
        ('attributes:domain AND NOT hasPrefix(attributes.domain, "co")', False),
        ('attributes.domain = "org" OR attributes.lang = "en"', True),
        ("attributes:absent OR attributes:missing OR attributes:lang", True),
        ("(attributes:absent AND attributes:lang) OR attributes:domain", True),
        ("attributes:domain AND (attributes:absent OR attributes:missing)", False),
        ("NOT (attributes:absent OR attributes:missing)", True),
        ("attributes:AND", True),
    ],
)
def test_a_filter_passes_what_it_names(text: str, passes: bool) -> None:
    assert parse_filter(text)(ATTRIBUTES) is passes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("attributes", "expected '.'"),
        ("domain", "expected attributes, hasPrefix, NOT or '('"),
        ("attributes.domain", "expected '=' or '!='"),
        ("attributes.domain = com", 'expected a "quoted" value'),
        ("attributes.domain = 'com'", "unexpected character"),
        ('attributes.domain == "com"', 'expected a "quoted" value'),
        ('attributes.domain = "com', "unexpected character"),
        ('attributes.domain < "com"', "unexpected character"),
        ('attributes.domain = "\\q"', "bad escape"),
        ("attributes:a and attributes:b", "expected AND, OR or the end"),
        ("attributes:a AND attributes:b OR attributes:c", "mixes AND and OR"),
        ("attributes:a attributes:b", "expected AND, OR or the end"),
        ("(attributes:a", "expected ')'"),
        ("attributes:a)", "expected AND, OR or the end"),
        ("attributes:a AND", "the end"),
        ("NOT", "the end"),
        ('hasSuffix(attributes.a, "x")', "'hasSuffix'"),
        ('hasPrefix("a", "x")', "expected 'attributes'"),
        ("attributes:" + "x" * 250, "at most 256"),
    ],
)
def test_a_malformed_filter_is_refused_with_the_place(text: str, says: str) -> None:
    with pytest.raises(FilterError, match="filter") as caught:
        parse_filter(text)
    assert says in str(caught.value)


@given(st.text(max_size=80) | st.text(alphabet='attributes:.=!"()ANDORT- hPefix,', max_size=80))
def test_any_text_is_a_filter_or_a_filter_error(text: str) -> None:
    try:
        predicate = parse_filter(text)
    except FilterError:
        return
    assert predicate(ATTRIBUTES) in (True, False)


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=3), st.text(max_size=5))
def test_unequal_is_the_opposite_of_equal(attributes: dict[str, str], value: str) -> None:
    quoted = json.dumps(value)
    assert parse_filter(f"attributes.k = {quoted}")(attributes) is (attributes.get("k") == value)
    assert parse_filter(f"attributes.k != {quoted}")(attributes) is (attributes.get("k") != value)
