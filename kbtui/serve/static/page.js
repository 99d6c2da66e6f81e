// The token is in a cookie now, so remove it from the address bar and the history.
history.replaceState(null, "", "/");
// Show the server's reason for closing the connection.
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
