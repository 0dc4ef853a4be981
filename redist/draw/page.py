"""Write a plan as HTML: a page that needs nothing else, or what a notebook shows."""

from __future__ import annotations

from base64 import b64encode
from html import escape

from redist.draw.picture import draw
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.topology import Topology

_STYLE = """
:root{color-scheme:light dark}
body{margin:2rem auto;max-width:1180px;padding:0 1rem;background:#fbfbfa;color:#1c1e21;
font:16px/1.5 ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif}
h1{font-size:1.5rem} h2{font-size:1.15rem;margin-top:2rem}
svg{max-width:100%;height:auto}
pre{overflow-x:auto;padding:1rem;border:1px solid #dcdcd8;border-radius:8px;background:#fff;
font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
@media (prefers-color-scheme:dark){body{background:#15171a;color:#eceef1}
pre{background:#1d2024;border-color:#33373d}}
"""


def make_page(plan: Plan, topology: Topology = FLAT) -> str:
    """Write a page: headline, picture, the plan as text, and the alternatives."""
    inner = f"""{draw(plan, topology)}
<h2>The plan</h2>
<pre>{escape(str(plan))}</pre>
<h2>What else was considered</h2>
<pre>{escape(plan.explain())}</pre>"""
    title = f"{plan.source} -> {plan.target}"
    return page_of(title, inner, f"How to redistribute an array: {title}")


def page_of(title: str, inner: str, headline: str = "") -> str:
    """Write a page that needs nothing else; ``inner`` is HTML below the headline."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width"/>
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(headline or title)}</h1>
{inner}
</body>
</html>
"""


def make_cell(plan: Plan) -> str:
    """Write the plan as text and as a picture for a notebook.

    The picture is an image of its own, so that its style cannot reach the rest of the notebook.
    """
    picture = b64encode(draw(plan).encode()).decode()
    name = escape(f"{plan.source} -> {plan.target}")
    return (
        f"<pre>{escape(str(plan))}</pre>\n"
        f'<img alt="{name}" style="max-width:100%" src="data:image/svg+xml;base64,{picture}"/>'
    )
