// Draws the ```mermaid blocks of a page, in the colors of the page's theme.
import { mermaid } from "./mermaid/index.js";

const dark = document.body.dataset.mdColorScheme === "slate";
mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "default", fontFamily: "inherit" });
const diagrams = [...document.querySelectorAll("pre.diagram")].map((block) => {
  const diagram = document.createElement("div");
  diagram.className = "diagram";
  diagram.textContent = block.textContent;
  block.replaceWith(diagram);
  return diagram;
});
mermaid.run({ nodes: diagrams });
