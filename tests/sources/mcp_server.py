"""An MCP server for tests: serves the resources in a JSON file, or misbehaves.

usage: mcp_server.py RESOURCES.json [hang-start|hang-list|hang-read|die|garbage|many]
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path


async def main(resources: dict, mode: str) -> None:
    # A server that never answers does not need these, and importing them takes a second.
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def listed(ctx, params) -> types.ListResourcesResult:
        if mode == "hang-list":
            await asyncio.sleep(3600)
        names = list(resources)
        at = int(params.cursor) if params and params.cursor else 0
        part = names[at : at + 2]
        more = at + 2 < len(names)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=uri, name=uri.rpartition("/")[2], title=resources[uri].get("title"),
                    mime_type=resources[uri].get("type"),
                )
                for uri in part
            ],
            next_cursor=str(at + 2) if more else None,
        )  # fmt: skip

    async def read(ctx, params) -> types.ReadResourceResult:
        found = resources[str(params.uri)]
        if mode == "hang-read" and found.get("slow"):
            await asyncio.sleep(3600)
        if mode == "die" and found.get("slow"):
            print("something broke", file=sys.stderr, flush=True)
            os._exit(3)
        if found.get("error"):
            raise ValueError(found["error"])
        kind = found.get("type")
        if "blob" in found:
            content = types.BlobResourceContents(uri=params.uri, mime_type=kind, blob=found["blob"])
        else:
            text = found["text"].replace("$SECRET", os.environ.get("SECRET", "unset"))
            content = types.TextResourceContents(uri=params.uri, mime_type=kind, text=text)
        return types.ReadResourceResult(contents=[content])

    server = Server("test", on_list_resources=listed, on_read_resource=read)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    Path("started").write_text(str(os.getpid()))
    mode = sys.argv[2] if len(sys.argv) > 2 else ""
    if mode == "hang-start":
        time.sleep(3600)
    if mode == "garbage":
        print("this is no JSON\n" * 100, flush=True)
        sys.exit(0)
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text()), mode))
