// Package render writes a report as text, JSON, CSV or Markdown. It changes no report.
package render
