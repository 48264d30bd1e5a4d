// Package objects replays the calls that create and destroy objects of the CUDA driver, such as
// events, streams, graphs and modules. It knows which objects are live, and which call created each.
package objects
