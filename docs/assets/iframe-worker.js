// A worker for pages that are opened as files: browsers refuse to start one from file://, so the
// search would stay empty there. Its script runs in a hidden frame instead, with the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      const load = (source) =>
        new Promise((loaded, failed) => {
          const script = this.inner.document.createElement("script");
          script.src = new URL(source, document.baseURI);
          script.onload = loaded;
          script.onerror = () => failed(new Error(`cannot load ${source}`));
          this.inner.document.body.appendChild(script);
        });
      this.inner.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      this.inner.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() =>
        this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })),
      );
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
}
