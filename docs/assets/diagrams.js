// Draws the diagrams of a page by Mermaid, which lies beside this file in the site.
const diagrams = document.querySelectorAll("div.diagram");
if (diagrams.length) {
  const { mermaid } = await import("./mermaid/index.js");
  const dark = () => document.body.getAttribute("data-md-color-scheme") === "slate";
  const sources = [...diagrams].map((each) => each.textContent);
  const draw = async () => {
    mermaid.initialize({ startOnLoad: false, theme: dark() ? "dark" : "default" });
    for (const [place, element] of diagrams.entries()) {
      element.innerHTML = (await mermaid.render(`diagram-${place}`, sources[place])).svg;
    }
  };
  await draw();
  new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
}
