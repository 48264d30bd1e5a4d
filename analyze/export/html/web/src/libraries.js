// The libraries of lib/, which earlier scripts of the page define as globals.

/** uPlot draws charts; d3 and its plugin flamegraph draw the flame graph. */
export const { uPlot, d3, flamegraph } = globalThis;
