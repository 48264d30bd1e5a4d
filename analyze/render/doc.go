// Package render writes a report as text, JSON, CSV or Markdown. It does not modify the report.
package render
