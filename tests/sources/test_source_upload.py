"""`file_upload`: text, Markdown, HTML, PDF, Word and source code, single files and directories."""

import io
import zipfile
from pathlib import Path

import pytest
from web_support import SourceWorkspace, page_with_links

from kbtui.knowledge.front_matter import join_front_matter_and_body
from kbtui.sources.source_document_store import compute_document_digest
from kbtui.userdata.user_data_store import UserData


def pdf(*pages: str) -> bytes:
    """Return a small valid PDF with a line of text on each page."""
    objects = ["<< /Type /IndexCatalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for at, text in enumerate(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * at} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        stream = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body, offsets = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    count = len(objects) + 1
    body += (
        f"xref\n0 {count}\n0000000000 65535 f \n{table}trailer\n<< /Size {count} /Root 1 0 R >>\n"
        f"startxref\n{len(body)}\n%%EOF\n"
    )
    return body.encode("latin-1")


def test_every_kind_becomes_a_subject(project: SourceWorkspace) -> None:
    folder = project.root / "inbox"
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.md").write_text("---\ntitle: My notes\n---\n# Notes\n\nThe aardvark.\n")
    (folder / "plain.txt").write_text("The ibex in plain text.\n")
    (folder / "page.html").write_text(page_with_links("A page", text="The wombat digs at night. "))
    (folder / "sub" / "paper.pdf").write_bytes(pdf("The lynx on page one", "and on page two"))
    (folder / "photo.jpg").write_bytes(b"\xff\xd8")
    (folder / ".hidden.md").write_text("# Hidden\n")
    project.add(kind="file_upload", file="inbox")
    run = project.run()
    assert (run.status, run.entries) == ("ok", 4)
    assert run.skips == (
        ("inbox/.hidden.md", "the file is hidden"),
        ("inbox/photo.jpg", "content type image/jpeg is not supported"),
    )
    found = project.documents()
    assert set(found) == {"notes.md", "plain.md", "page.md", "sub/paper.md"}
    assert "title: My notes" in found["notes.md"]
    assert "The ibex in plain text." in found["plain.md"]
    assert "The wombat digs" in found["page.md"]
    assert "<p>" not in found["page.md"]
    assert "## Page 1\n\nThe lynx on page one" in found["sub/paper.md"]
    assert "## Page 2" in found["sub/paper.md"]
    assert "source_url: inbox/sub/paper.pdf" in found["sub/paper.md"]


def test_changes_follow_and_only_they(project: SourceWorkspace) -> None:
    folder = project.root / "inbox"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.md").write_text(f"# {name}\n\ntext\n")
    project.add(kind="file_upload", file="inbox")
    assert project.run().added == 3
    kept = (project.root / "docs/guide/docs/a.md").stat().st_mtime_ns
    (folder / "b.md").write_text("# b\n\nother text\n")
    (folder / "c.md").unlink()
    (folder / "d.md").write_text("# d\n\ntext\n")
    run = project.run()
    assert (run.added, run.updated, run.removed, run.unchanged) == (1, 1, 1, 1)
    assert (project.root / "docs/guide/docs/a.md").stat().st_mtime_ns == kept


def test_a_file_outside_of_the_workspace_may_be_named(
    project: SourceWorkspace, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("# Outside\n\ntext\n")
    project.add(kind="file_upload", file=str(outside))
    assert project.run().status == "ok"
    assert list(project.documents()) == ["outside.md"]


def test_links_in_a_directory_are_not_followed(project: SourceWorkspace, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("# Secret\n")
    folder = project.root / "inbox"
    folder.mkdir()
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "real.md").write_text("# Real\n\ntext\n")
    project.add(kind="file_upload", file="inbox")
    run = project.run()
    assert run.skips == (("inbox/link.md", "links are not followed"),)
    assert list(project.documents()) == ["real.md"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.pdf", b"%PDF-1.4 and then nothing", "not a readable PDF"),
        ("x.pdf", pdf(""), "no text"),
        ("x.txt", b"a\0b", "binary"),
        ("x.md", b"", "no text"),
        ("x.html", b"", "not HTML"),
        ("x.docx", b"PK and then nothing", "not a readable Word file"),
        ("x.bin", b"\x7fELF\0\0\0", "binary"),
    ],
    ids=[
        "damaged PDF",
        "scanned PDF",
        "binary text",
        "empty",
        "empty HTML",
        "damaged Word",
        "binary",
    ],
)
def test_a_file_without_text_is_an_error_with_its_reason(
    project: SourceWorkspace, name: str, content: bytes, reason: str
) -> None:
    (project.root / name).write_bytes(content)
    project.add(kind="file_upload", file=name)
    run = project.run()
    assert run.status == "error"
    assert reason in (run.error or "")
    assert project.documents() == {}


def test_one_bad_file_leaves_the_others(project: SourceWorkspace) -> None:
    folder = project.root / "inbox"
    folder.mkdir()
    (folder / "good.md").write_text("# Good\n\ntext\n")
    (folder / "bad.pdf").write_bytes(b"nonsense")
    project.add(kind="file_upload", file="inbox")
    run = project.run()
    assert (run.status, run.entries) == ("partial", 1)


def test_a_file_that_vanished_is_an_error_and_its_document_stays(project: SourceWorkspace) -> None:
    path = project.root / "x.md"
    path.write_text("# X\n\ntext\n")
    project.add(kind="file_upload", file="x.md")
    project.run()
    path.unlink()
    run = project.run()
    assert run.status == "error"
    assert "does not exist" in (run.error or "")
    assert list(project.documents()) == ["x.md"]
    assert run.entries == 1


def test_a_fifo_does_not_hang_a_run(project: SourceWorkspace) -> None:
    import os

    folder = project.root / "inbox"
    folder.mkdir()
    os.mkfifo(folder / "pipe.md")
    (folder / "good.md").write_text("# Good\n\ntext\n")
    project.add(kind="file_upload", file="inbox")
    run = project.run()
    assert run.skips == (("inbox/pipe.md", "not a regular file"),)
    assert list(project.documents()) == ["good.md"]


def docx(*paragraphs: tuple[str, str], table: list[list[str]] | None = None) -> bytes:
    """Return a small Word file: paragraphs as (style, text), and a table after them."""
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    rows = "".join(
        f"<w:p><w:pPr><w:pStyle w:val='{style}'/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"
        for style, text in paragraphs
    )
    for number, row in enumerate(table or []):
        cells = "".join(f"<w:tc><w:p><w:r><w:t>{cell}</w:t></w:r></w:p></w:tc>" for cell in row)
        rows += ("" if number else "<w:tbl>") + f"<w:tr>{cells}</w:tr>"
    rows += "</w:tbl>" if table else ""
    styles = "".join(
        f"<w:style w:type='paragraph' w:styleId='{name.replace(' ', '')}'><w:name w:val='{name}'/></w:style>"
        for name in ("Title", "heading 1", "heading 2", "Normal")
    )
    office = "http://schemas.openxmlformats.org"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{office}/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{office}/package/2006/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{office}/package/2006/relationships"><Relationship '
        f'Id="r1" Type="{office}/officeDocument/2006/relationships/styles" Target="styles.xml"/></Relationships>',
        "word/document.xml": f"<w:document {space}><w:body>{rows}</w:body></w:document>",
        "word/styles.xml": f"<w:styles {space}>{styles}</w:styles>",
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return made.getvalue()


def test_a_word_file_becomes_markdown(project: SourceWorkspace) -> None:
    (project.root / "plan.docx").write_bytes(
        docx(
            ("Title", "Winter plan"),
            ("Normal", "What we do when it snows."),
            ("heading2", "Roads"),
            ("Normal", "The wombat clears them."),
            table=[["Road", "Who"], ["north", "wombat"]],
        )
    )
    project.add(kind="file_upload", file="plan.docx")
    assert project.run().status == "ok"
    text = project.documents()["plan.md"]
    assert "title: Winter plan\n" in text
    assert (
        "# Winter plan\n\nWhat we do when it snows.\n\n## Roads\n\nThe wombat clears them." in text
    )
    assert "| Road | Who |\n| --- | --- |\n| north | wombat |" in text


def test_text_of_any_form_is_fenced_with_its_language(project: SourceWorkspace) -> None:
    folder = project.root / "inbox"
    folder.mkdir()
    files = {
        "server.py": "---\nprint('```')\n",
        "server.md": "# The server\n\nIn words.\n",
        "sizes.csv": "name,size\nfish,3\n",
        "Makefile": "all:\n\ttrue\n",
        "deploy": "#!/usr/bin/env bash\nexit\n",
        "README": "Read me first.\n",
        "compose.yaml": "---\na: 1\n---\nb: 2\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    project.add(kind="file_upload", file="inbox")
    run = project.run()
    assert (run.status, run.entries, run.skips) == ("ok", len(files), ())
    bodies = {name: text.split("---\n\n", 1)[1] for name, text in project.documents().items()}
    assert bodies == {
        "server.py.md": "````python\n---\nprint('```')\n````\n",
        "server.md": "# The server\n\nIn words.\n",
        "sizes.csv.md": "```csv\nname,size\nfish,3\n```\n",
        "makefile.md": "```makefile\nall:\n\ttrue\n```\n",
        "deploy.md": "```bash\n#!/usr/bin/env bash\nexit\n```\n",
        "readme.md": "Read me first.\n",
        "compose.yaml.md": "```yaml\n---\na: 1\n---\nb: 2\n```\n",
    }
    assert "title: server.py\n" in project.documents()["server.py.md"]
    assert project.run().unchanged == len(files)


@pytest.mark.parametrize("inside", [True, False])
def test_no_file_tells_where_its_original_lay(
    project: SourceWorkspace, tmp_path: Path, inside: bool
) -> None:
    folder = (project.root if inside else tmp_path / "elsewhere") / "inbox"
    folder.mkdir(parents=True)
    page = '<html><body><main><p>On wombats. <a href="b.html">Further</a></p></main></body></html>'
    (folder / "a.html").write_text(page)
    (folder / "plain.txt").write_text("text\n")
    project.add(kind="file_upload", file=str(folder))
    assert project.run().status == "ok"
    texts = project.documents()
    assert "source_url: inbox/a.html\n" in texts["a.md"]
    assert "[Further](b.html)" in texts["a.md"]
    assert not any(str(tmp_path) in text for text in texts.values())


def test_documents_that_carry_a_path_from_before_keep_their_files(project: SourceWorkspace) -> None:
    (project.root / "inbox").mkdir()
    (project.root / "inbox/a.md").write_text("# A\n\ntext\n")
    project.add(kind="file_upload", file=str(project.root / "inbox"))
    assert project.run().added == 1
    # As version 0.1 wrote it.
    path = project.root / "docs/guide/docs/a.md"
    facts = {"title": "A", "type": "file_upload", "source": "docs", "source_url": str(project.root / "inbox/a.md")}  # fmt: skip
    written = join_front_matter_and_body(
        {**facts, "digest": compute_document_digest(facts, "# A\n\ntext")}, "# A\n\ntext"
    )
    path.write_text(written)
    UserData(project.builder.workspace).save_fetched_address_facts(
        "docs", {facts["source_url"]: {"stat": "1:1"}}
    )
    run = project.run()
    assert (run.added, run.updated, run.removed, run.edited) == (0, 1, 0, ())
    assert list(project.documents()) == ["a.md"]
    assert "source_url: inbox/a.md\n" in project.documents()["a.md"]
