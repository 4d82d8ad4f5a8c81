"""An MCP server that refuses unknown arguments, which the library would ignore."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult, Tool


class StrictServer(MCPServer[Any]):
    """A server whose tools take only the arguments of their schemas."""

    async def list_tools(self) -> list[Tool]:
        """The tools, with schemas that allow no other arguments."""
        closed = {"additionalProperties": False}
        return [
            tool.model_copy(update={"input_schema": tool.input_schema | closed})
            for tool in await super().list_tools()
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Raises ToolError for an argument that the tool does not have."""
        arguments_of = {tool.name: tool.input_schema["properties"] for tool in await super().list_tools()}
        unknown = [each for each in arguments if each not in arguments_of.get(name, arguments)]
        if unknown:
            taken = ", ".join(arguments_of[name])
            raise ToolError(f"{name} has no argument {unknown[0][:50]!r}; it has {taken}")
        return await super().call_tool(name, arguments, context)
