"""A corpus for agents: a server of the Model Context Protocol (MCP), and a skill file for assistants."""
