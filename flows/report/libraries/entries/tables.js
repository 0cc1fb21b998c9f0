// What tables use of other people's code: TanStack Table for columns, order and filters, TanStack Virtual
// for the rows that are seen.
import {
  columnFilteringFeature, columnVisibilityFeature, constructTable, createFilteredRowModel, createSortedRowModel,
  globalFilteringFeature, rowSortingFeature, tableFeatures,
} from "@tanstack/table-core";
import { storeReactivityBindings } from "@tanstack/table-core/store-reactivity-bindings";
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";

const features = tableFeatures({
  coreReactivityFeature: storeReactivityBindings(),
  columnFilteringFeature, columnVisibilityFeature, globalFilteringFeature, rowSortingFeature,
  filteredRowModel: createFilteredRowModel(), sortedRowModel: createSortedRowModel(),
});

globalThis.libraries = { ...globalThis.libraries, constructTable, elementScroll, features, observeElementOffset, observeElementRect, Virtualizer };
