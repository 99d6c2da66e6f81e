// The token is in a cookie now: take it out of the address bar and the history.
history.replaceState(null, "", "/");
// Where the server says why it ended the connection, the page says so too.
window.WebSocket = class extends WebSocket {
  constructor(...words) {
    super(...words);
    this.addEventListener("close", ({ reason }) => {
      if (reason) document.getElementById("ended-text").textContent = reason;
    });
  }
};
addEventListener("DOMContentLoaded", () => {
  const again = document.getElementById("again");
  again.addEventListener("click", () => location.reload());
  new MutationObserver(() => {
    if (document.body.classList.contains("-closed")) again.focus();
    else document.querySelector(".xterm-helper-textarea")?.focus();
  }).observe(document.body, { attributeFilter: ["class"] });
});
