// The table of the instruction set GAUSSGURU_TARGET.
#include "kernels.hpp"

namespace gaussguru {
namespace {

Kernels filled() {
    Kernels table{};
    table.name = GAUSSGURU_TARGET_NAME;
    GAUSSGURU_TARGET::add_pointwise(table);
    GAUSSGURU_TARGET::add_binary(table);
    GAUSSGURU_TARGET::add_columns(table);
    GAUSSGURU_TARGET::add_joint(table);
    GAUSSGURU_TARGET::add_drops(table);
    GAUSSGURU_TARGET::add_sgd(table);
    GAUSSGURU_TARGET::add_sgd_joint(table);
    GAUSSGURU_TARGET::add_measured(table);
    GAUSSGURU_TARGET::add_populations(table);
    return table;
}

}  // namespace

const Kernels& GAUSSGURU_TARGET::kernels() {
    static const Kernels table = filled();
    return table;
}

}  // namespace gaussguru
