"""Pages with a script of a test in them."""

from fastapi.responses import HTMLResponse

from latentalign.web.guards import page_policy

LISTEN = """<script>
const violations = [];
document.addEventListener("securitypolicyviolation", event => {
  violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
</script>"""


def probed(page: str, probe: str) -> HTMLResponse:
    """A page with a probe, which may read `violations` of the content security policy; the policy allows the probe."""
    whole = page.replace("<head>", f"<head>{LISTEN}") + probe
    return HTMLResponse(whole, headers={"Content-Security-Policy": page_policy(whole)})
