// The libraries in lib/. Scripts that run before this bundle define them as global variables.

/** uPlot draws charts; d3 and its plugin flamegraph draw the flame graph. */
export const { uPlot, d3, flamegraph } = globalThis;
