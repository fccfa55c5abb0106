"""Texts that are markup, or worse, where someone forgets that they are text."""


def hostile():
    """Two hundred strings that are markup, or worse, where someone forgot that they are text."""
    inner = [
        "<script>alert(1)</script>", "</title><script>x()</script>", "</svg><img src=x onerror=alert(1)>", "\"><b onload=x>",
        "' onmouseover='x()", "</style><style>*{display:none}", "<!--", "-->", "]]>", "<![CDATA[", "&lt;script&gt;",
        "&#60;b&#62;", "</desc></svg>", "javascript:alert(1)", "\x00<b>", "\ud800<i>", "\u202etxt.exe", "\ufffe",
        "<a href=//x.y>", "<math><mi>",
    ]  # fmt: skip
    wraps = ["{}", " {}", "{}\n", "a{}", "{0}{0}", '"{}"', "'{}'", "<{}>", "{}\x1b", "</bdi>{}"]
    return [wrap.replace("{0}", "{}").replace("{}", text) for text in inner for wrap in wraps]
