// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// output is the flag -o. A page or a table is for people: nothing in it that somebody else wrote can move the cursor or
// pass for something that it is not. All other forms are data, and stay as the API server gave them.
type output struct {
	flags   *genericclioptions.PrintFlags
	people  []string
	printer printers.ResourcePrinter
}

// addOutputFlags adds -o with the formats of kubectl, and those for people; the first of these is the default.
func addOutputFlags(cmd *cobra.Command, people ...string) *output {
	o := &output{flags: genericclioptions.NewPrintFlags("").WithDefaultOutput(people[0]), people: people}
	o.flags.AddFlags(cmd)
	cmd.Flag("output").Usage = "how to print: " + strings.Join(o.formats(), ", ")
	return o
}

func (o *output) formats() []string { return slices.Concat(o.people, o.flags.AllowedFormats()) }

// complete understands -o.
func (o *output) complete() error {
	if o.forPeople() {
		return nil
	}
	printer, err := o.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return usageError{fmt.Errorf("the output %q is none of %s", *o.flags.OutputFormat, strings.Join(o.formats(), ", "))}
	}
	if err != nil {
		return usageError{err}
	}
	o.printer = printer
	return nil
}

// forPeople tells whether a page or a table is asked for.
func (o *output) forPeople() bool {
	template := o.flags.TemplatePrinterFlags.TemplateArgument
	return slices.Contains(o.people, *o.flags.OutputFormat) && (*template == "" || o.flags.OutputFlagSpecified())
}

func (o *output) wide() bool { return *o.flags.OutputFormat == "wide" }

// object prints one object as data.
func (o *output) object(out io.Writer, c client.Client, object client.Object) error {
	if err := setKind(c, object); err != nil {
		return err
	}
	return o.printer.PrintObj(object, out)
}

// list prints objects as data: as a List, or each of them where only names are asked for.
func (o *output) list(out io.Writer, c client.Client, objects []client.Object) error {
	list := &metav1.List{TypeMeta: metav1.TypeMeta{Kind: "List", APIVersion: "v1"}, Items: []runtime.RawExtension{}}
	for _, object := range objects {
		if err := setKind(c, object); err != nil {
			return err
		}
		if *o.flags.OutputFormat == "name" {
			if err := o.printer.PrintObj(object, out); err != nil {
				return err
			}
		}
		list.Items = append(list.Items, runtime.RawExtension{Object: object})
	}
	if *o.flags.OutputFormat == "name" {
		return nil
	}
	return o.printer.PrintObj(list, out)
}

// setKind gives an object the kind and version that data needs: the client leaves them out.
func setKind(c client.Client, object client.Object) error {
	kind, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return nil
}

// maxCell is how many bytes of a text are shown in a cell; -o wide shows four times as many.
const maxCell = 64

// table prints rows under a header, and in a later call further rows, for -w.
type table struct {
	out interface {
		io.Writer
		Flush() error
	}
	columns []metav1.TableColumnDefinition
	printer printers.ResourcePrinter
	limit   int
}

// newTable returns a table; a column whose name begins with + is for -o wide only.
func (o *output) newTable(out io.Writer, columns ...string) *table {
	t := &table{
		out:     printers.GetNewTabWriter(out),
		printer: printers.NewTablePrinter(printers.PrintOptions{Wide: o.wide()}),
		limit:   maxCell,
	}
	if o.wide() {
		t.limit *= 4
	}
	for _, name := range columns {
		name, wide := strings.CutPrefix(name, "+")
		column := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if wide {
			column.Priority = 1
		}
		t.columns = append(t.columns, column)
	}
	return t
}

// print prints rows; each cell is made harmless, and shows that it is empty.
func (t *table) print(rows ...[]string) error {
	data := &metav1.Table{ColumnDefinitions: slices.Clone(t.columns)}
	for _, row := range rows {
		cells := make([]any, len(row))
		for i, text := range row {
			cells[i] = cell(text, t.limit)
		}
		data.Rows = append(data.Rows, metav1.TableRow{Cells: cells})
	}
	if err := t.printer.PrintObj(data, t.out); err != nil {
		return err
	}
	return t.out.Flush()
}

func cell(text string, limit int) string {
	if text == "" {
		return "-"
	}
	return glyph.Plain(glyph.Digested(text, limit))
}
