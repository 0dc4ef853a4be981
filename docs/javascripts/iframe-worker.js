/* Browsers start no workers for pages that are opened as files. The search needs one: run it in a hidden frame instead. */
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.waiting = [];
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    inside.importScripts = () => {};
    const script = inside.document.createElement("script");
    script.src = url;
    script.onload = () => {
      const waiting = this.waiting;
      this.waiting = null;
      waiting.forEach((data) => this.postMessage(data));
    };
    inside.document.body.append(script);
  }

  postMessage(data) {
    if (this.waiting) {
      this.waiting.push(data);
    } else {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.Worker = FrameWorker;
}
