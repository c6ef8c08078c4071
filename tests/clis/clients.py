"""The CLI side of the rig: for each CLI its command, its files and its environment.

`prepare(setup)` writes the files a CLI needs below `setup.home` and gives a Launch.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from playbook import SERVER

KEPT = ("LANG", "LC_ALL", "TERM", "TZ")  # nothing else of the caller's environment gets through
INSTALL = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex", "opencode": "opencode-ai"}


@dataclass
class Setup:
    home: Path
    model_url: str
    url: str
    token: str | None = None
    agents: dict | None = None
    prompt: str = "go"
    also: list = field(default_factory=list)

    @property
    def work(self):
        return self.home / "work"


@dataclass
class Launch:
    command: list
    env: dict = field(default_factory=dict)


def base_env(setup, bin_dir):
    path = os.environ.get("PATH", os.defpath)
    home = str(setup.home)
    return {**{k: os.environ[k] for k in KEPT if k in os.environ},
            "PATH": f"{bin_dir}{os.pathsep}{path}" if bin_dir else path,
            "HOME": home, "TMPDIR": str(setup.home / "tmp"),
            "XDG_CONFIG_HOME": f"{home}/.config", "XDG_DATA_HOME": f"{home}/.local/share",
            "XDG_STATE_HOME": f"{home}/.local/state", "XDG_CACHE_HOME": f"{home}/.cache",
            "NO_PROXY": "127.0.0.1,localhost"}


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)


def _server(kind, url, token):
    headers = {"headers": {"Authorization": f"Bearer {token}"}} if token else {}
    return {"type": kind, "url": url, **headers}


def claude(setup):
    config = setup.home / "mcp.json"
    _write(config, json.dumps({"mcpServers": {SERVER: _server("http", setup.url, setup.token)}}))
    allowed = [f"mcp__{SERVER}"]
    command = ["claude", "-p", setup.prompt, "--output-format", "json",
               "--strict-mcp-config", "--mcp-config", str(config)]
    if setup.agents:
        allowed += ["Agent", *sorted(f"mcp__{name}" for name in inline_servers(setup.agents))]
        command += ["--agents", json.dumps(setup.agents)]
    command += ["--allowedTools", ",".join(allowed), *setup.also]
    return Launch(command, {
        "ANTHROPIC_BASE_URL": setup.model_url, "ANTHROPIC_API_KEY": "none",
        "ENABLE_TOOL_SEARCH": "false",  # else the MCP tools hide behind a search tool of its own
        "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(setup.home / ".claude")})


def inline_servers(agents):
    """The names of the MCP servers that agents bring along themselves."""
    entries = [e for agent in agents.values() for e in agent.get("mcpServers", [])]
    return {name for e in entries if isinstance(e, dict) for name in e}


CODEX = """\
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = {base}
wire_api = "responses"
env_key = "SCRIPTED_KEY"

[mcp_servers.{server}]
url = {url}
default_tools_approval_mode = "approve"
{auth}"""


def codex(setup):
    auth = 'bearer_token_env_var = "GATEWAY_TOKEN"\n' if setup.token else ""
    _write(setup.home / ".codex" / "config.toml", CODEX.format(
        base=json.dumps(setup.model_url + "/v1"), url=json.dumps(setup.url), server=SERVER, auth=auth))
    env = {"CODEX_HOME": str(setup.home / ".codex"), "SCRIPTED_KEY": "none"}
    if setup.token:
        env["GATEWAY_TOKEN"] = setup.token
    return Launch(["codex", "exec", "--skip-git-repo-check", "--json", setup.prompt], env)


def opencode(setup):
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "scripted",
                "options": {"baseURL": setup.model_url + "/v1", "apiKey": "none"},
                "models": {"scripted": {"name": "scripted", "tool_call": True}}}
    _write(setup.work / "opencode.json", json.dumps({
        "model": "scripted/scripted", "small_model": "scripted/scripted",
        "autoupdate": False, "share": "disabled", "permission": {"*": "allow"},
        "provider": {"scripted": provider},
        "mcp": {SERVER: {**_server("remote", setup.url, setup.token), "enabled": True, "oauth": False}}}))
    # a given title spares the request for one; npm would fetch a plugin package in the background
    return Launch(["opencode", "run", "--format", "json", "--title", "scripted", setup.prompt], {
        "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "npm_config_offline": "true"})


CLIS = {"claude": claude, "codex": codex, "opencode": opencode}


def prepare(cli, setup, bin_dir):
    for folder in (setup.work, setup.home / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    launch = CLIS[cli](setup)
    launch.env = {**base_env(setup, bin_dir), **launch.env}
    return launch


def load_agents(path, url, token):
    """An `--agents` file with `{url}` and `{token}` put into its strings."""
    def fill(value):
        if isinstance(value, str):
            return value.replace("{url}", url).replace("{token}", token)
        if isinstance(value, list):
            return [fill(v) for v in value]
        return {k: fill(v) for k, v in value.items()} if isinstance(value, dict) else value

    return fill(json.loads(Path(path).read_text(encoding="utf-8")))
