package symbolize

import (
	"strings"
)

const (
	// maxTemplateFoldDepth is the depth of nested template arguments up to which
	// shortenQualifiedName looks for functors.
	maxTemplateFoldDepth = 5
	// maxUnfoldedArgumentLength is the length up to which a list of nested arguments is kept:
	// "<float>" has more information than "<...>".
	maxUnfoldedArgumentLength = 8
)

// ShortKernel returns a short form of a kernel's demangled name for tables. Arguments of the
// kernel's template lose their namespaces. Their own arguments become "...", except for short ones,
// functors and lambdas, which distinguish kernels of one template. Different kernels can have the
// same short form. ShortKernel returns names that it cannot parse unchanged.
func ShortKernel(full string) string {
	if !strings.ContainsAny(full, "<(") {
		return full
	}
	name := strings.ReplaceAll(full, "(anonymous namespace)::", "")
	short, ok := shortenQualifiedName(name, 0)
	if !ok || short == "" {
		return full
	}
	return short
}

// shortenQualifiedName shortens a qualified name. level is 0 for the kernel's own name and n for an
// argument of nested templates.
func shortenQualifiedName(name string, level int) (string, bool) {
	if level > maxTemplateFoldDepth {
		return "...", true
	}
	parts, ok := splitOutsideBrackets(name, "::")
	if !ok {
		return "", false
	}
	var b strings.Builder
	for i, part := range parts {
		last := i == len(parts)-1
		// A lambda's call operator before another name, and namespaces of arguments, carry no
		// information.
		if !last && (strings.HasPrefix(part, "operator()") || level > 0 && isIdentifier(part)) {
			continue
		}
		text, ok := shortenNamePart(part, level, last)
		if !ok {
			return "", false
		}
		if b.Len() > 0 {
			b.WriteString("::")
		}
		b.WriteString(text)
	}
	return b.String(), true
}

// shortenNamePart shortens one part of a qualified name: a name with template arguments and
// parameters, or a lambda.
func shortenNamePart(part string, level int, last bool) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(part); {
		if n := cppOperatorLength(part[i:]); n > 0 && (i == 0 || !isIdentifierByte(part[i-1])) {
			b.WriteString(part[i : i+n])
			i += n
			continue
		}
		c := part[i]
		if c != '<' && c != '(' && c != '{' {
			b.WriteByte(c)
			i++
			continue
		}
		n := bracketedLength(part[i:])
		if n == 0 {
			return "", false
		}
		group, ok := shortenBracketedText(c, part[i+1:i+n-1], level)
		if !ok {
			return "", false
		}
		i += n
		if c == '(' && !last && i >= len(strings.TrimSuffix(part, " const")) {
			break // parameters of an enclosing function
		}
		b.WriteString(group)
	}
	return strings.TrimSpace(b.String()), true
}

// shortenBracketedText shortens the text within brackets. open is the opening bracket.
func shortenBracketedText(open byte, inside string, level int) (string, bool) {
	switch open {
	case '{':
		if params, ok := strings.CutPrefix(inside, "lambda("); ok {
			if end := strings.LastIndexByte(params, ')'); end >= 0 {
				list, ok := shortenArgumentList(params[:end], level, false)
				if list != "" {
					list = "(" + list + ")"
				}
				return "{lambda" + list + params[end+1:] + "}", ok
			}
		}
		return "{" + inside + "}", true
	case '(':
		list, ok := shortenArgumentList(inside, level, false)
		return "(" + list + ")", ok
	}
	list, ok := shortenArgumentList(inside, level, level > 0)
	return "<" + list + ">", ok
}

// shortenArgumentList shortens the members of a list. If fold is true, it replaces unimportant
// members by "...".
func shortenArgumentList(list string, level int, fold bool) (string, bool) {
	members, ok := splitOutsideBrackets(list, ",")
	if !ok {
		return "", false
	}
	fold = fold && len(list) > maxUnfoldedArgumentLength
	var short []string
	for _, m := range members {
		text, ok := shortenQualifiedName(strings.TrimSpace(m), level+1)
		if !ok {
			return "", false
		}
		if fold && !isDistinctiveArgument(m, text, len(members) == 1) {
			text = "..."
		}
		if text != "..." || len(short) == 0 || short[len(short)-1] != "..." {
			short = append(short, text)
		}
	}
	return strings.Join(short, ", "), true
}

// isDistinctiveArgument reports whether a nested argument identifies the computation of the kernel.
// Functors and lambdas do. A single argument does if it is short or a template.
func isDistinctiveArgument(argument, short string, alone bool) bool {
	if strings.Contains(argument, "{lambda") || strings.Contains(argument, "unctor") {
		return true
	}
	return alone && (len(short) <= maxUnfoldedArgumentLength || strings.Contains(argument, "<"))
}

// splitOutsideBrackets splits a text at separators outside of brackets. It returns false if
// brackets do not match.
func splitOutsideBrackets(s, separator string) (parts []string, ok bool) {
	start := 0
	for i := 0; i < len(s); {
		if n := cppOperatorLength(s[i:]); n > 0 && (i == 0 || !isIdentifierByte(s[i-1])) {
			i += n
			continue
		}
		switch c := s[i]; {
		case c == '<' || c == '(' || c == '{':
			n := bracketedLength(s[i:])
			if n == 0 {
				return nil, false
			}
			i += n
		case c == '>' || c == ')' || c == '}':
			return nil, false
		case strings.HasPrefix(s[i:], separator):
			parts = append(parts, s[start:i])
			i += len(separator)
			start = i
		default:
			i++
		}
	}
	return append(parts, s[start:]), true
}

// bracketedLength returns the length of the bracketed text at the start of s. It returns 0 if the
// closing bracket is missing.
func bracketedLength(s string) int {
	var open []byte
	for i := 0; i < len(s); {
		if n := cppOperatorLength(s[i:]); n > 0 && (i == 0 || !isIdentifierByte(s[i-1])) {
			i += n
			continue
		}
		switch c := s[i]; c {
		case '<':
			open = append(open, '>')
		case '(':
			open = append(open, ')')
		case '{':
			open = append(open, '}')
		case '>', ')', '}':
			if len(open) == 0 || open[len(open)-1] != c {
				return 0
			}
			if open = open[:len(open)-1]; len(open) == 0 {
				return i + 1
			}
		}
		i++
	}
	return 0
}

// cppOperators are C++ operators with brackets in their names. An operator precedes its prefixes.
var cppOperators = []string{"<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">", "()"}

// cppOperatorLength returns the length of an operator name at the start of s, or 0.
func cppOperatorLength(s string) int {
	rest, ok := strings.CutPrefix(s, "operator")
	if !ok {
		return 0
	}
	for _, op := range cppOperators {
		if strings.HasPrefix(rest, op) {
			return len("operator") + len(op)
		}
	}
	return 0
}

// isIdentifier reports whether s consists of letters, digits and underscores.
func isIdentifier(s string) bool {
	for i := range len(s) {
		if !isIdentifierByte(s[i]) {
			return false
		}
	}
	return s != ""
}

// isIdentifierByte reports whether c is a letter, a digit or an underscore.
func isIdentifierByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
