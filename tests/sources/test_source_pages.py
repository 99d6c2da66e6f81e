"""Pages of common site generators become clean Markdown."""

import re
from pathlib import Path

import pytest
from web_support import Site, SourceWorkspace

pytestmark = pytest.mark.usefixtures("read_in_this_process")

PAGES = Path(__file__).with_name("pages")
NAMES = sorted(path.stem for path in PAGES.glob("*.html"))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_the_golden_file_says(
    project: SourceWorkspace, site: Site, name: str
) -> None:
    site.pages["/guide/page.html"] = (PAGES / f"{name}.html").read_text()
    project.crawl(site.url("/guide/page.html"), depth=0)
    assert project.run().status == "ok"
    [text] = project.documents().values()
    facts, body = text.split("---\n", 2)[1:]
    title = re.search(r"^title: (.*)$", facts, re.MULTILINE)
    assert title is not None
    found = f"{title[1]}\n\n{body.strip()}\n".replace(site.url("/"), "https://site.example/")
    assert found == (PAGES / f"{name}.md").read_text()


def test_the_golden_files_are_clean() -> None:
    assert len(NAMES) >= 6
    for name in NAMES:
        text = (PAGES / f"{name}.md").read_text()
        for sign in (
            "¶",
            "[#]",
            "[]",
            "\u200b",
            "Copy to",
            "Copy Code",
            "Skip to",
            "Edit this page",
            "<",
        ):
            assert sign not in re.sub(r"```.*?```", "", text, flags=re.DOTALL), (name, sign)


@pytest.mark.parametrize(
    ("html", "code"),
    [
        ('<pre><code class="language-go">a\n\n\n  b</code></pre>', "```go\na\n\n\n  b\n```"),
        ('<pre class="brush:java">a</pre>', "```java\na\n```"),
        ('<div class="highlight" data-lang="rust"><pre>a</pre></div>', "```rust\na\n```"),
        ('<div class="highlight-default"><pre>a</pre></div>', "```\na\n```"),
        ("<pre>a ``` b</pre>", "````\na ``` b\n````"),
        ("<pre><div>one</div><div>two</div></pre>", "```\none\ntwo\n```"),
        (
            '<table class="lntable"><tr><td class="lntd"><pre><code><span class="lnt">1</span></code></pre></td>'
            '<td class="lntd"><pre><code class="language-go" data-lang="go">a</code></pre></td></tr></table>',
            "```go\na\n```",
        ),
        (
            "<ul><li><p>first</p><pre>a\n b</pre></li><li>second</li></ul>",
            "- first\n\n  ```\n  a\n   b\n  ```\n\n- second",
        ),
    ],
)
@pytest.mark.parametrize("main", ["<div role=main>{}</div>", "<main><article>{}</article></main>"])
def test_code_keeps_its_lines_and_its_language(
    project: SourceWorkspace, site: Site, html: str, code: str, main: str
) -> None:
    words = "<p>The wombat digs at night, and sleeps as soon as the sun is up again.</p>"
    page = main.format(f"<h1>Digging</h1>{words * 3}{html}{words * 3}")
    site.pages["/"] = f"<html><head><title>Digging</title></head><body>{page}</body></html>"
    project.crawl(site.url(), depth=0)
    project.run()
    [text] = project.documents().values()
    assert f"\n\n{code}\n\n" in text


def test_the_posts_of_a_thread_are_all_taken(project: SourceWorkspace, site: Site) -> None:
    posts = "".join(
        f'<article class="markdown-body"><p>The {name} answers at length, as such posts do.</p></article>'
        for name in ("wombat", "lynx", "ibex")
    )
    site.pages["/"] = f"<html><head><title>T</title></head><body><main>{posts}</main></body></html>"
    project.crawl(site.url(), depth=0)
    project.run()
    [text] = project.documents().values()
    assert all(name in text for name in ("wombat", "lynx", "ibex"))
