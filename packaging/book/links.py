#!/usr/bin/env python3
"""mdBook's preprocessor for docs/: a link that leaves the book becomes the name of the file, since the book has no other files of the
repository. Links of ARCHITECTURE.md, which a chapter includes, are given from the repository's root.
"""
import json
import os
import re
import sys

INCLUDED_FROM_ROOT = {"architecture.md"}
# Files outside of docs/ that are chapters of the book.
CHAPTERS = {"ARCHITECTURE.md": "docs/architecture.md"}
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def chapters(items):
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def rewritten(chapter, pages):
    path = chapter["path"]
    here = os.path.dirname(path)

    def link(match):
        text, target = match.groups()
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return match.group(0)
        file, _, anchor = target.partition("#")
        base = "docs/.." if path in INCLUDED_FROM_ROOT else os.path.join("docs", here)
        from_root = os.path.normpath(os.path.join(base, file))
        inside = os.path.relpath(CHAPTERS.get(from_root, from_root), "docs")
        if inside in pages:
            # mdBook writes each README.md as the index of its folder.
            page = re.sub(r"(^|/)README\.md$", r"\1index.md", os.path.relpath(inside, here or "."))
            return f"[{text}]({page}{'#' + anchor if anchor else ''})"
        name = f"`{from_root}`"
        return name if text.strip("`") in (file, from_root) else f"{text} ({name})"

    parts = re.split(r"(^```.*?^```)", chapter["content"], flags=re.M | re.S)
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    all_chapters = [c for c in chapters(book.get("items", book.get("sections"))) if c["path"]]
    pages = {c["source_path"] for c in all_chapters}
    for chapter in all_chapters:
        chapter["content"] = rewritten({**chapter, "path": chapter["source_path"]}, pages)
    json.dump(book, sys.stdout)


main()
