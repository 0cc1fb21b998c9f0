// Makes libraries.js of entry.js, and LICENSES of the packages that are in it.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const { metafile } = await build({
  entryPoints: ["entry.js"],
  outfile: "libraries.js",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  legalComments: "none",
  metafile: true,
});

const bundled = Object.entries(Object.values(metafile.outputs)[0].inputs).filter(([, { bytesInOutput }]) => bytesInOutput);
const folders = bundled.map(([path]) => path.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//)?.[1]);
// The packages by the text of their licence, which many share.
const packages = new Map();
for (const folder of [...new Set(folders)].filter(Boolean).sort()) {
  const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  if (!file) throw new Error(`${name} has no file with its licence`);
  const text = readFileSync(`${folder}/${file}`, "utf8").trim();
  packages.set(text, [...(packages.get(text) || []), `${name} ${version} (${license})`]);
}
const parts = [...packages].map(([text, names]) => `${names.join("\n")}\n\n${text}\n`);
writeFileSync("LICENSES", `The packages that are in libraries.js, and their licences.\n\n${parts.join(`\n${"-".repeat(80)}\n\n`)}`);
