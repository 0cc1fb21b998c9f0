// What charts use of other people's code. The interpreter evaluates the expressions of a chart without
// `eval`, which the policy of the pages forbids.
import { parse, View } from "vega";
import { expressionInterpreter } from "vega-interpreter";
import { compile } from "vega-lite";

globalThis.libraries = { ...globalThis.libraries, compile, expressionInterpreter, parse, View };
