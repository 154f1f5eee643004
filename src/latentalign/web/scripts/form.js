/* What the forms of served pages share: requests to the server, one at a time, whose replies are added to a viewer. */
const form = makeForm();

function makeForm() {
  const at = id => document.getElementById(id);
  const viewer = document.querySelector("section.viewer");
  viewer.hidden = true;
  let showLast = null, busy = false, submit = () => {}, token = sessionStorage.getItem("token");

  /* Do some work unless other work is under way: buttons pressed meanwhile do nothing. */
  async function alone(work) {
    if (busy) return;
    busy = true;
    at("try").setAttribute("aria-busy", "true");
    at("fault").textContent = "";
    try { await work(); } finally {
      busy = false;
      at("try").removeAttribute("aria-busy");
    }
  }

  /* The response of an address, asked with the token if there is one. If the server wants another one, ask for it. */
  async function fetchWithToken(address, { headers, ...options } = {}) {
    const authorization = token ? { Authorization: `Bearer ${token}` } : {};
    const response = await fetch(address, { ...options, headers: { ...headers, ...authorization } });
    if (response.status === 401) at("unlock").hidden = false;
    return response;
  }

  /* The reply of an address, or null after showing the error on the page. */
  async function ask(address, body) {
    try {
      const response = await fetchWithToken(address, body && {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      const reply = await response.json();
      if (response.ok) return reply;
      at("fault").textContent = reply.error ?? response.statusText;
    } catch (error) {
      at("fault").textContent = `no answer: ${error.message}`;
    }
    return null;
  }

  /* Show lines to choose from, each a button. */
  function offer(lines, choose) {
    at("outputs").replaceChildren(...lines.map(([text, note], k) => {
      const item = document.createElement("li"), button = document.createElement("button");
      const small = document.createElement("small");
      Object.assign(button, { type: "button", textContent: text || "(nothing)" });
      button.addEventListener("click", () => alone(() => choose(k)));
      small.textContent = ` ${note}`;
      item.append(button, small);
      return item;
    }));
  }

  /* Add a record to the viewer, which `start` starts when it gets its first one. */
  function show(models, record, start) {
    Object.values(models)[0].push(record);
    viewer.hidden = false;
    if (showLast) showLast(); else showLast = start();
  }

  function hideViewer() { viewer.hidden = true; }

  /* Ask the server what it serves and set the form up; `setUp` returns what to do when the form is submitted. */
  async function start(setUp) {
    at("ask").addEventListener("submit", () => alone(submit));
    for (const area of at("ask").querySelectorAll("textarea")) {
      area.addEventListener("keydown", event => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        if (!event.repeat) (at(area.dataset.button) ?? at("ask").querySelector("[type=submit]")).click();
      });
    }
    const connect = async () => {
      let about = null;
      await alone(async () => { about = await ask("/api/about"); });
      if (about) submit = setUp(about);
    };
    at("unlock").addEventListener("submit", () => {
      token = at("token").value;
      sessionStorage.setItem("token", token);  // until the tab is closed
      at("unlock").hidden = true;
      connect();
    });
    await connect();
  }

  return { at, alone, ask, fetchWithToken, offer, show, hideViewer, start };
}
