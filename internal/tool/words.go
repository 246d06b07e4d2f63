// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"strings"
	"unicode"
)

// Words splits a name of a tool or an argument into its words, in lower case:
// at every rune that is neither letter nor digit, between letters and digits,
// and where camel case starts a word (HTTPDelete is http, delete; userIDs is
// user, ids). Names of products in their own spelling stay whole, so that
// WordPress holds no press; a product name that reads as verb and object
// (SendGrid) is split on purpose.
func Words(name string) []string {
	runes := []rune(name)
	var words []string
	for start := 0; start < len(runes); {
		if !isWordRune(runes[start]) {
			start++
			continue
		}
		end := wordEnd(runes, start)
		words = append(words, strings.ToLower(string(runes[start:end])))
		start = end
	}
	return words
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// wordEnd returns where the word that starts at start ends; it is always beyond start.
func wordEnd(runes []rune, start int) int {
	if end := productEnd(runes, start); end > start {
		return end
	}
	end := start + 1
	if unicode.IsDigit(runes[start]) {
		for end < len(runes) && unicode.IsDigit(runes[end]) {
			end++
		}
		return end
	}
	if !unicode.IsUpper(runes[start]) {
		return lowerEnd(runes, end)
	}
	for end < len(runes) && unicode.IsUpper(runes[end]) {
		end++
	}
	switch {
	case end == len(runes) || !isLower(runes[end]):
		return end
	case end == start+1:
		return lowerEnd(runes, end)
	case isPluralEnd(runes, end):
		return end + 1
	default:
		return end - 1 // the last capital starts the next word
	}
}

// lowerEnd returns the end of the run of letters that are not capitals.
func lowerEnd(runes []rune, end int) int {
	for end < len(runes) && isLower(runes[end]) {
		end++
	}
	return end
}

// isLower counts letters without case as small, so that they never split.
func isLower(r rune) bool { return unicode.IsLetter(r) && !unicode.IsUpper(r) }

// isPluralEnd tells whether the s at i closes an acronym, as in listVMs and idsOfURLsOnly.
func isPluralEnd(runes []rune, i int) bool {
	return runes[i] == 's' && (i+1 == len(runes) || !isLower(runes[i+1]))
}

// productEnd returns the end of the product name at start, or start if there is none.
func productEnd(runes []rune, start int) int {
	longest := start
	for _, product := range products {
		end := start + len(product)
		if end <= longest || end > len(runes) || !startsWith(runes[start:], product) {
			continue
		}
		if end < len(runes) && (isLower(runes[end]) || unicode.IsDigit(runes[end])) {
			continue
		}
		longest = end
	}
	return longest
}

func startsWith(runes []rune, ascii string) bool {
	for i := range len(ascii) {
		if runes[i] != rune(ascii[i]) {
			return false
		}
	}
	return true
}

// products are names in ASCII whose own spelling would be split wrongly.
var products = []string{
	// Places where work is done.
	"WordPress", "GitHub", "GitLab", "BitBucket", "CircleCI", "TeamCity", "ArgoCD", "HubSpot", "ClickUp",
	"QuickBooks", "DocuSign", "PagerDuty", "LaunchDarkly", "PostHog", "ServiceNow", "SharePoint", "OneDrive",
	"OneNote", "PowerPoint", "StackOverflow", "YouTube", "LinkedIn", "WhatsApp", "TikTok", "PayPal",
	"WooCommerce", "BigCommerce", "MailChimp", "SurveyMonkey", "HackerNews", "OpenAI", "LangChain",
	// Clouds and clusters.
	"OpenShift", "OpenStack", "DigitalOcean", "CloudFlare", "CloudWatch", "CloudFormation", "CloudFront",
	"CloudTrail", "VMware", "K8s", "k8s", "S3", "s3", "EC2", "ec2", "Route53", "route53", "IaC",
	// Stores of data.
	"MongoDB", "DynamoDB", "CosmosDB", "MariaDB", "InfluxDB", "TimescaleDB", "CockroachDB", "DuckDB", "ChromaDB",
	"PostgreSQL", "MySQL", "NoSQL", "ClickHouse", "BigQuery", "BigTable", "OpenSearch", "ElasticSearch",
	"RabbitMQ", "ActiveMQ", "Neo4j", "neo4j", "LevelDB",
	// Languages, formats and protocols.
	"JavaScript", "TypeScript", "AppleScript", "PowerShell", "GraphQL", "OpenAPI", "FastAPI", "OAuth2", "OAuth",
	"oauth2", "Auth0", "auth0", "Web3", "web3", "Base64", "base64", "Sha256", "SHA256", "sha256", "MD5", "md5",
	"2FA", "iOS", "iPhone", "iPad", "macOS", "iCloud", "eBay", "n8n", "GeoJSON", "PromQL", "LogQL", "TraceQL",
}
