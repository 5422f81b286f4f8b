// Starts `advlab lsp` for .rhai files.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = async () => {
  const settings = workspace.getConfiguration("advlab");
  const server = { command: settings.get("path"), args: ["lsp"] };
  client = new LanguageClient("advlab", "advlab", server, {
    documentSelector: [{ scheme: "file", language: "rhai" }],
    initializationOptions: { batch: settings.get("batch"), inlayHints: settings.get("inlayHints") },
    synchronize: { configurationSection: "advlab" },
  });
  await client.start();
};

exports.deactivate = () => client?.stop();
