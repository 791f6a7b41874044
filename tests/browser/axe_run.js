// The findings of axe-core, and how many rules it could check.
async () => {
  const found = await axe.run(document, { iframes: false });
  const text = (node) => `${node.html.slice(0, 300)} | ${node.failureSummary.slice(0, 300)}`;
  const rules = found.violations.map(({ id, impact, help, nodes }) => ({ id, impact, help, nodes: nodes.slice(0, 5).map(text) }));
  return { rules, checked: found.passes.length };
}
