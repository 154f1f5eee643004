// Browsers start no web worker from a file:// page. There, run the search worker in a hidden frame,
// so that the search box works without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const script = String(url).replace(/"/g, "%22")
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc =
        "<script>self.postMessage = data => parent.postMessage(data, '*')</" + "script>" +
        `<script src="${script}"></` + "script>"
      this.ready = new Promise(resolve => this.frame.addEventListener("load", resolve))
      window.addEventListener("message", event => {
        if (event.source === this.frame.contentWindow)
          this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      document.body.appendChild(this.frame)
    }

    postMessage(data) {
      // The frame's own postMessage answers us, so deliver the message as an event.
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
